#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "benchmarks/collective/collective_case.h"
#include "benchmarks/collective/collective_system.h"
#include "runtime/api/kolo.h"

namespace kolo::bench {

/// The numbers of rows change from call to call, as batches do: rows are drawn for so many calls.
inline constexpr int kRowTurns = 4;

/// The indices that `rank` passes to a call of kSparseRows, drawn with repetition. The chance of a
/// row falls with its index, by Zipf's law.
std::vector<std::int64_t> drawn_rows(const CollectiveCase& what, int rank, int turn);

/// Whether `drawn_rows` has each row of the table.
std::vector<bool> rows_drawn(const CollectiveCase& what, int rank, int turn);

/// `sparse_all_reduce` in place of an all-reduce of the table, of which a rank has the rows of the
/// first turn.
std::unique_ptr<CollectiveRun> make_sparse_rows_run(Runtime& runtime, const CollectiveCase& what);

}  // namespace kolo::bench
