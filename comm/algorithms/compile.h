#pragma once

#include "comm/algorithms/algorithm.h"
#include "comm/schedule/schedule.h"

namespace kolo {

/// The schedule of `rank` for a goal, by an algorithm that serves it.
///
/// Before: all arguments but `rank` are equal on all ranks; the goal has as many elements as the
///         layout. After running it on all ranks, each receiver of a part holds its result.
/// Threads: pure; any.
/// Errors: UsageError if the count of a device bucket is no multiple of `device_padding`.
Schedule compile(int rank, const Algorithm& algorithm, const CompileContext& context);

/// The same by the algorithm that `choose` gives. Errors: as `choose`.
Schedule compile(int rank, const Goal& goal, const BucketLayout& layout, const ProcessGrid& grid,
                 const CompileOptions& options);

}  // namespace kolo
