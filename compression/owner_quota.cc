#include "compression/owner_quota.h"

#include <algorithm>
#include <numeric>

#include "comm/base/check.h"
#include "compression/kernels/nth_key.h"

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

std::size_t GlobalThreshold::bins() const {
  check(!found(), "the threshold is found");
  return radix::digit(digit_).bins();
}

void GlobalThreshold::count(const Pairs& sums, std::span<std::uint32_t> counts) const {
  check(counts.size() == bins(), "counts of another digit");
  const radix::Digit digit = radix::digit(digit_);
  std::ranges::fill(counts, 0u);
  for (const float value : sums.values) {
    const std::uint32_t key = radix::key_of(value);
    if (digit.prefix(key) == prefix_) ++counts[digit.of(key)];
  }
}

void GlobalThreshold::narrow(std::span<const std::uint32_t> counts) {
  check(!found(), "the threshold is found");
  const radix::Digit digit = radix::digit(digit_);
  check(counts.size() == digit.bins(), "counts of another digit");
  if (digit_++ == 0) {
    everything_ = std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}) <= need_;
  }
  if (everything_ || need_ == 0) return;
  std::uint32_t bin = digit.bins() - 1;
  while (counts[bin] < need_) need_ -= counts[bin--];
  prefix_ = prefix_ << digit.bits | bin;
}

std::size_t GlobalThreshold::equals(const Pairs& sums) const {
  check(found(), "the threshold is not found yet");
  std::size_t equals = 0;
  for (const float value : sums.values) equals += radix::key_of(value) == prefix_;
  return equals;
}

void GlobalThreshold::keep(Pairs& sums, std::size_t equals_before) const {
  check(found(), "the threshold is not found yet");
  if (everything_) return;
  if (need_ == 0) return sums.clear();
  Keeper keeper(sums);
  keeper.keep_from(0, sums.size(), prefix_, need_ > equals_before ? need_ - equals_before : 0);
  keeper.finish();
}

}  // namespace kolo
