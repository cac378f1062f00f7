#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compression/payload.h"

namespace kolo {

/// The rule for which sums become part of the result. Each gives the same bits on every path of the
/// pairs; the rules differ from each other.
enum class QuotaRule : std::uint8_t {
  kQuota,     ///< Each owner keeps its largest sums of each tensor, its fair share of the tensor's
              ///< pairs: a result of fixed size, in which no tensor starves beside a larger one.
  kLossless,  ///< Every sum of a pair that some rank sent.
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

}  // namespace kolo
