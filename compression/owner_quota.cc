#include "compression/owner_quota.h"

#include <algorithm>

#include "comm/base/check.h"
#include "compression/kernels/nth_key.h"
#include "compression/kernels/radix_select.h"

namespace kolo {
namespace {

/// Moves the kept ones of the sums to the front, in order.
class Keeper {
 public:
  explicit Keeper(Pairs& sums) : sums_(sums) {}

  /// Keeps, of the sums [begin, end), those above `key` and the first `equals` of those at it.
  void keep_from(std::size_t begin, std::size_t end, std::uint32_t key, std::size_t equals) {
    for (std::size_t i = begin; i < end; ++i) {
      const std::uint32_t own = radix::key_of(sums_.values[i]);
      if (own < key || (own == key && equals == 0)) continue;
      if (own == key) --equals;
      sums_.indices[kept_] = sums_.indices[i];
      sums_.values[kept_] = sums_.values[i];
      ++kept_;
    }
  }
  void finish() {
    sums_.indices.resize(kept_);
    sums_.values.resize(kept_);
  }

 private:
  Pairs& sums_;
  std::size_t kept_ = 0;
};

}  // namespace

std::size_t owner_quota(std::size_t k, std::size_t local_count, std::size_t count) {
  if (count == 0) return 0;
  check(k <= count && local_count <= count && count <= std::size_t{1} << 32,
        "a quota is a share of what there is");
  return (k * local_count + count - 1) / count;
}

void keep_largest(Pairs& sums, std::span<const QuotaPart> parts, std::vector<std::uint32_t>& keys) {
  Keeper keeper(sums);
  std::size_t begin = 0;
  for (const QuotaPart& part : parts) {
    std::size_t end = begin;
    while (end < sums.size() && sums.indices[end] < part.end) ++end;
    if (end - begin <= part.quota) {
      keeper.keep_from(begin, end, 0, end - begin);
    } else if (part.quota > 0) {
      const radix::NthKey nth = radix::nth_largest_key(
          std::span(sums.values).subspan(begin, end - begin), part.quota, 0, keys);
      keeper.keep_from(begin, end, nth.key, nth.need);
    }
    begin = end;
  }
  keeper.finish();
}

}  // namespace kolo
