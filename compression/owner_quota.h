#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compression/kernels/radix_select.h"
#include "compression/payload.h"

namespace kolo {

/// The rule for which sums become part of the result. Each gives the same bits on every path of the
/// pairs; the rules differ from each other.
enum class QuotaRule : std::uint8_t {
  kQuota,  ///< Each owner keeps its largest sums of each tensor, its fair share of the tensor's
           ///< pairs: a result of fixed size, in which no tensor starves beside a larger one.
  kGlobalExact,  ///< The k largest of all owners; three small integer all-reduces find them.
  kLossless,     ///< Every sum of a pair that some rank sent.
};

/// Number of sums that an owner of `local_count` of `count` elements keeps under kQuota: k in
/// proportion, rounded up, so at density one it is all of them.
std::size_t owner_quota(std::size_t k, std::size_t local_count, std::size_t count);

/// A tensor's share of an owner's quota: the indices below `end` that belong to no part before.
struct QuotaPart {
  std::size_t end = 0;
  std::size_t quota = 0;
  friend bool operator==(const QuotaPart&, const QuotaPart&) = default;
};

/// Keeps the `quota` largest magnitudes of each part, the lower index among equal ones, in order.
/// Before:  sums in ascending order; `parts` cover all indices. Threads: pure; any. `keys` is
///          scratch memory for at most sums.size() keys.
void keep_largest(Pairs& sums, std::span<const QuotaPart> parts, std::vector<std::uint32_t>& keys);

/// Finds the k largest magnitudes of all owners' sums, digit by digit. Every owner counts, the
/// counts are summed over the owners (integers, so the order does not matter), and every owner
/// finds the same digit. After the last one, ties go to the owners in ascending order.
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
  /// Number of values of the next digit. Before: !found().
  std::size_t bins() const;
  /// Counts these sums by the value of the digit. Before: counts.size() == bins().
  void count(const Pairs& sums, std::span<std::uint32_t> counts) const;
  /// Before: `counts` are those of all owners together.
  void narrow(std::span<const std::uint32_t> counts);

  /// Number of sums exactly at the threshold. Before: found().
  std::size_t equals(const Pairs& sums) const;
  /// Keeps the sums above the threshold, and of those at it this owner's share, given that the
  /// owners before it have `equals_before`. Before: found().
  void keep(Pairs& sums, std::size_t equals_before) const;

 private:
  std::size_t need_;  ///< Number needed among the sums with this prefix.
  std::uint32_t prefix_ = 0;
  int digit_ = 0;
  bool everything_ = false;  ///< There are at most k sums.
};

}  // namespace kolo
