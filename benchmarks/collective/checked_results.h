#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "benchmarks/collective/collective_case.h"
#include "benchmarks/collective/collective_system.h"
#include "runtime/api/kolo.h"

namespace kolo::bench {

/// Makes contributions whose result is known and exact in all dtypes, for up to 127 ranks.
///
/// In a reduction, one rank contributes 2 for an element and all others contribute 1; that rank
/// changes from element to element. In a premultiplied sum a rank's factor is its `scale_of`. In a
/// collective that only moves elements, each value identifies the rank and the index. In a table of
/// rows, the rows that a rank does not pass are zero.
class CheckedResults {
 public:
  /// Ignores `what.home` and `what.in_place`. Errors: none.
  CheckedResults(const Runtime& runtime, const CollectiveCase& what);

  /// This rank's contribution: the elements of all its parts, one part after the other.
  const std::byte* contribution() const { return contribution_.data(); }

  /// Returns the number of wrong elements in the result of `run` on all ranks. Collective.
  std::uint64_t count_wrong(Runtime& runtime, CollectiveRun& run) const;
  /// Returns the number of changed elements in the contribution of `run`, summed over all ranks. An
  /// out-of-place collective must not write to its contribution. Collective.
  std::uint64_t count_changed(Runtime& runtime, CollectiveRun& run) const;

 private:
  void add_rows(const CollectiveCase& what, int rank, int ranks,
                const std::vector<std::vector<std::byte>>& elements);

  std::size_t element_bytes_;
  std::vector<std::byte> contribution_;
  std::vector<std::byte> right_;  ///< The expected result on this rank.
};

}  // namespace kolo::bench
