#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/schedule/schedule.h"
#include "comm/verify/verifier.h"
#include "topology/process_grid.h"

namespace kolo {

/// Returns the ranges that a step itself reads and writes, without ranges to which it only grants a
/// peer access. Exposed buffers are replaced by the tensors and slots that they stand for.
std::vector<std::pair<Range, Access>> accesses(const Step& step, const BucketLayout& layout);

/// Returns the ranks of a native step of `rank`, in ascending order.
std::vector<int> meeting_members(const Step& step, int rank, const ProcessGrid& grid);

/// Checks peers, flags, ranges and regions of one step alone. Returns the error, if any, as the end
/// of a sentence ("touches memory beyond the end"). Threads: any; pure.
std::optional<std::string> check_step(const Step& step, const Schedule& schedule,
                                      const ProcessGrid& grid, const VerifyOptions& options);

}  // namespace kolo
