#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "compression/payload.h"

namespace kolo {

/// Sums what all ranks send to one owner: float32, in the order in which payloads are added, which
/// is ascending rank, so that the bits do not depend on how or when they arrived.
///
/// Memory:  4 bytes per element of the owner, and a bit. Threads: one.
class OwnerSum {
 public:
  explicit OwnerSum(std::size_t local_count);

  /// The first value of an element is taken as it is, the next ones are added.
  /// Errors: UsageError for an index that the owner does not have.
  void add(const Pairs& pairs);

  /// Moves the sums of all elements that came, in ascending order, to `sums`, and starts anew.
  void take(Pairs& sums);

 private:
  std::vector<float> sums_;
  std::vector<std::uint64_t> touched_;  ///< A bit per element.
};

}  // namespace kolo
