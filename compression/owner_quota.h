#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compression/kernels/radix_select.h"
#include "compression/payload.h"

namespace kolo {

/// Which sums become part of the result. All three give the same bits on every path that the pairs
/// may take; between each other they differ.
enum class QuotaRule : std::uint8_t {
  kQuota,        ///< Each owner keeps the largest, its fair share of k: a result of fixed size.
  kGlobalExact,  ///< The k largest of all owners; three small integer all-reduces find them.
  kLossless,     ///< Everything that anybody sent.
};

/// What an owner of `local_count` of `count` elements keeps under kQuota: k in proportion, rounded
/// up, so that at density one it is all it has.
std::size_t owner_quota(std::size_t k, std::size_t local_count, std::size_t count);

/// Keeps the `quota` largest magnitudes, of equal ones those of lower index, in order.
/// Threads: pure; any. `keys` is scratch memory for at most sums.size() keys.
void keep_largest(Pairs& sums, std::size_t quota, std::vector<std::uint32_t>& keys);

/// The k largest magnitudes of all owners' sums, digit by digit: every owner counts, the counts are
/// summed over the owners (integers, so that the order does not matter), and every owner finds the
/// same digit. After the last one, ties are given to the owners in ascending order.
///
///     GlobalThreshold threshold(k);
///     while (!threshold.found()) threshold.narrow(all_reduce(threshold.count(sums, counts)));
///     ... all_gather(threshold.equals(sums)) ...
///     threshold.keep(sums, sum of the equals of the owners before);
///
/// Threads: pure; any.
class GlobalThreshold {
 public:
  explicit GlobalThreshold(std::size_t k) : need_(k) {}

  bool found() const { return digit_ == radix::kDigitCount; }
  /// Values that the next digit may have. Before: !found().
  std::size_t bins() const;
  /// How many of these sums have each of them. Before: counts.size() == bins().
  void count(const Pairs& sums, std::span<std::uint32_t> counts) const;
  /// Before: `counts` are those of all owners together.
  void narrow(std::span<const std::uint32_t> counts);

  /// How many sums are exactly at the threshold. Before: found().
  std::size_t equals(const Pairs& sums) const;
  /// Keeps what is above the threshold, and of what is at it the part that falls to this owner,
  /// when the owners before it have `equals_before`. Before: found().
  void keep(Pairs& sums, std::size_t equals_before) const;

 private:
  std::size_t need_;  ///< Of the sums with this prefix.
  std::uint32_t prefix_ = 0;
  int digit_ = 0;
  bool everything_ = false;  ///< There are no more than k.
};

}  // namespace kolo
