#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "compression/payload.h"

namespace kolo {

/// Sums the pairs that all ranks send to one owner: in float32, in the order in which payloads are
/// added, which is ascending rank, so the bits do not depend on the path or time of arrival.
///
/// Memory:  4 bytes and one bit per element of the owner. Threads: one.
class OwnerSum {
 public:
  explicit OwnerSum(std::size_t local_count);

  /// The first value of an element is stored, later ones are added. Errors: UsageError for an index
  /// that the owner does not have.
  void add(const Pairs& pairs);

  /// Moves the sums of all elements with a value to `sums`, in ascending order, and starts again.
  void take(Pairs& sums);

 private:
  std::vector<float> sums_;
  std::vector<std::uint64_t> touched_;  ///< One bit per element.
};

}  // namespace kolo
