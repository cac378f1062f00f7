#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "benchmarks/collective/collective_case.h"
#include "benchmarks/collective/collective_system.h"
#include "runtime/api/kolo.h"

namespace kolo::bench {

/// Contributions with a known result that is exact in all dtypes, for up to 127 ranks.
///
/// To a reduction, a rank contributes 2 for one element in rotation, otherwise 1; in a
/// premultiplied sum the factor is its `scale_of`. Elements that are only moved identify rank and
/// index. Rows of a table that a rank does not have are zero.
class CheckedResults {
 public:
  /// Ignores `what.home` and `what.in_place`. Errors: none.
  CheckedResults(const Runtime& runtime, const CollectiveCase& what);

  /// This rank's contribution, part by part.
  const std::byte* contribution() const { return contribution_.data(); }

  /// Number of wrong elements of the result in `run`, over all ranks. Collective.
  std::uint64_t count_wrong(Runtime& runtime, CollectiveRun& run) const;
  /// Number of changed elements of the contribution, over all ranks: a collective out of place must
  /// only read it. Collective.
  std::uint64_t count_changed(Runtime& runtime, CollectiveRun& run) const;

 private:
  void add_rows(const CollectiveCase& what, int rank, int ranks,
                const std::vector<std::vector<std::byte>>& elements);

  std::size_t element_bytes_;
  std::vector<std::byte> contribution_;
  std::vector<std::byte> right_;  ///< Expected result of this rank.
};

}  // namespace kolo::bench
