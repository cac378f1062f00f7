#include "compression/owner_sum.h"

#include <bit>

#include "comm/base/check.h"

namespace kolo {
namespace {
constexpr std::size_t kWord = 64;
}

OwnerSum::OwnerSum(std::size_t local_count)
    : sums_(local_count), touched_((local_count + kWord - 1) / kWord) {}

void OwnerSum::add(const Pairs& pairs) {
  for (std::size_t j = 0; j < pairs.size(); ++j) {
    const std::uint32_t i = pairs.indices[j];
    check(i < sums_.size(), "a pair for another owner");
    const std::uint64_t bit = std::uint64_t{1} << i % kWord;
    std::uint64_t& word = touched_[i / kWord];
    sums_[i] = (word & bit) != 0 ? sums_[i] + pairs.values[j] : pairs.values[j];
    word |= bit;
  }
}

void OwnerSum::take(Pairs& sums) {
  sums.clear();
  for (std::size_t w = 0; w < touched_.size(); ++w) {
    for (std::uint64_t word = touched_[w]; word != 0; word &= word - 1) {
      const std::size_t i = w * kWord + static_cast<std::size_t>(std::countr_zero(word));
      sums.add(static_cast<std::uint32_t>(i), sums_[i]);
    }
    touched_[w] = 0;
  }
}

}  // namespace kolo
