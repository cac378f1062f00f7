#pragma once

#include "comm/collective/compile_options.h"
#include "comm/collective/selection.h"
#include "comm/schedule/schedule.h"
#include "topology/process_grid.h"

namespace kolo {

/// The schedule of `rank` that combines a bucket of `layout` over all ranks.
///
/// Before: layout, grid and options are equal on all ranks. After running it on all ranks, all hold
///         identical bytes. Threads: pure; any.
/// Errors: as `resolve_algorithm`; UsageError if the count of a device bucket is no multiple of
///         `device_padding`.
Schedule compile_all_reduce(int rank, const BucketLayout& layout, const ProcessGrid& grid,
                            const CompileOptions& options);

}  // namespace kolo
