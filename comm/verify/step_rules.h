#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/schedule/schedule.h"
#include "comm/verify/verifier.h"
#include "topology/process_grid.h"

namespace kolo {

/// The ranges that one step itself reads and writes, without ranges that it hands to a peer.
/// Exposed buffers are replaced by the tensors and slots that they stand for.
std::vector<std::pair<Range, Access>> accesses(const Step& step, const BucketLayout& layout);

/// The ranks that take part in a native step of `rank`, in ascending order.
std::vector<int> meeting_members(const Step& step, int rank, const ProcessGrid& grid);

/// An error in a step of `schedule` considered alone, as the end of a sentence ("touches memory
/// beyond the end"): peers, flags, ranges and regions. Threads: any; pure.
std::optional<std::string> check_step(const Step& step, const Schedule& schedule,
                                      const ProcessGrid& grid, const VerifyOptions& options);

}  // namespace kolo
