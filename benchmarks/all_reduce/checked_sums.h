#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "benchmarks/all_reduce/all_reduce_case.h"
#include "benchmarks/all_reduce/all_reduce_system.h"
#include "runtime/api/kolo.h"

namespace kolo::bench {

/// Contributions whose sum, product, minimum and maximum are small integers, exact in all dtypes
/// for up to 127 ranks: 2 for one element in rotation, else 1. Every element of the result thus has
/// the same value.
class CheckedSums {
 public:
  /// Ignores `what.home` and `what.in_place`. Errors: none.
  CheckedSums(const Runtime& runtime, const AllReduceCase& what);

  /// This rank's contribution.
  const std::byte* contribution() const { return contribution_.data(); }

  /// Number of wrong elements of the sum in `run`, over all ranks. Collective.
  std::uint64_t count_wrong(Runtime& runtime, AllReduceRun& run) const;
  /// Number of changed elements of the contribution, over all ranks: an all-reduce out of place
  /// only reads it. Collective.
  std::uint64_t count_changed(Runtime& runtime, AllReduceRun& run) const;

 private:
  std::vector<std::byte> contribution_;
  std::vector<std::byte> right_;  ///< One element.
};

}  // namespace kolo::bench
