#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "benchmarks/collective/collective_case.h"
#include "benchmarks/collective/collective_system.h"
#include "runtime/api/kolo.h"

namespace kolo::bench {

/// Number of calls with different rows, after which the rows repeat. The number of rows changes
/// from call to call, as it does from batch to batch.
inline constexpr int kRowTurns = 4;

/// Returns the indices that `rank` passes to a call of kSparseRows. Indices may repeat. The
/// probability of a row decreases with its index, by Zipf's law. `turn`: number of the call, less
/// than kRowTurns.
std::vector<std::int64_t> drawn_rows(const CollectiveCase& what, int rank, int turn);

/// Returns for each row of the table whether `drawn_rows` contains it.
std::vector<bool> rows_drawn(const CollectiveCase& what, int rank, int turn);

/// Makes a run that calls `sparse_all_reduce` instead of an all-reduce of the whole table. The
/// table that the caller writes contains the rows of the first call.
std::unique_ptr<CollectiveRun> make_sparse_rows_run(Runtime& runtime, const CollectiveCase& what);

}  // namespace kolo::bench
