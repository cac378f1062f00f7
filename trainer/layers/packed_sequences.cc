#include "trainer/layers/packed_sequences.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "comm/base/check.h"

namespace kolo::trainer {
namespace {

std::size_t in_blocks(std::size_t rows) {
  constexpr std::size_t kBlock = PackedSequences::kRowBlock;
  return std::max((rows + kBlock - 1) / kBlock, std::size_t{1}) * kBlock;
}

}  // namespace

PackedSequences::PackedSequences(std::size_t sequences, std::size_t length)
    : capacity_(in_blocks(sequences * length)), lengths_(sequences), order_(sequences) {
  places_.reserve(sequences * length);
  steps_.reserve(length);
}

void PackedSequences::assign(std::span<const std::int32_t> lengths) {
  check(lengths.size() == lengths_.size(), "as many sequences are packed as there is room for");
  std::ranges::copy(lengths, lengths_.begin());
  std::iota(order_.begin(), order_.end(), std::size_t{0});
  std::ranges::sort(order_, [this](std::size_t a, std::size_t b) {
    return std::pair(lengths_[b], a) < std::pair(lengths_[a], b);
  });
  places_.clear();
  steps_.clear();
  for (std::size_t going_on = order_.size();;) {
    while (going_on > 0 && lengths_[order_[going_on - 1]] <= steps_.size()) --going_on;
    if (going_on == 0) break;
    const std::size_t step = steps_.size();
    steps_.push_back({places_.size(), going_on});
    for (std::size_t i = 0; i < going_on; ++i) places_.push_back({order_[i], step});
  }
}

std::size_t PackedSequences::rows() const { return in_blocks(places_.size()); }

}  // namespace kolo::trainer
