#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "benchmarks/collective/collective_case.h"
#include "benchmarks/collective/collective_system.h"
#include "runtime/api/kolo.h"

namespace kolo::bench {

/// Rows are drawn for this many calls, because the numbers of rows change from call to call, as
/// batches do.
inline constexpr int kRowTurns = 4;

/// The indices that `rank` passes to a call of kSparseRows, drawn with repetition. The probability
/// of a row decreases with its index, by Zipf's law.
std::vector<std::int64_t> drawn_rows(const CollectiveCase& what, int rank, int turn);

/// By row of the table: whether `drawn_rows` contains it.
std::vector<bool> rows_drawn(const CollectiveCase& what, int rank, int turn);

/// Uses `sparse_all_reduce` instead of an all-reduce of the table, of which a rank has the rows of
/// the first turn.
std::unique_ptr<CollectiveRun> make_sparse_rows_run(Runtime& runtime, const CollectiveCase& what);

}  // namespace kolo::bench
