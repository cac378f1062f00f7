#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/schedule/collective_spec.h"
#include "comm/schedule/schedule.h"
#include "topology/process_grid.h"

namespace kolo {

/// Capabilities of the job's network.
struct VerifyOptions {
  /// The network sends and receives device memory, without staging.
  bool network_takes_device_memory = false;
};

/// Executes the schedules of all ranks without data. Returns the first error, with rank and step,
/// or nothing if all of this holds for every possible timing:
///
///  - every receiver of a part ends with the part's elements at their offsets, with each
///    contributor's value exactly once, scaled once if it was reduced; all receivers sum and round
///    in the same order; ranks do not read their own data in parts to which they do not contribute;
///  - every send matches one receive of equal length, every signal matches one await;
///  - steps access whole payloads, planned with equal capacity for a send and its receive;
///    contributions are merged in rank order; only steps of the codec access pairs;
///  - a codec adds residuals to a contribution once, before it is summed with those of ranks that
///    do so too, and each rank inspects its final results once;
///  - every native step has a counterpart on all ranks of its group, and all ranks launch the
///    native steps of a group in the same order; the first rank's step depends on everything that
///    another rank's step depends on, so that steps of other buckets may be launched between them;
///  - there is no deadlock, even if a send lasts until its receive is posted, and a native step
///    until all its ranks have started it;
///  - if results replace contributions, all contributions are read before any is replaced;
///  - two steps that access the same range, on the same or different ranks, are ordered if one of
///    them writes;
///  - other ranks access a rank's memory only after one of its steps and before another, so never
///    outside its iteration; with two copies of staging memory, a peer may still access a copy
///    later if a step of the rank depends on a step of that peer, which has then started the
///    iteration;
///  - steps use memory and flags of a peer only within its node and never for a device bucket,
///    whose messages use staging memory, and read nothing before it is written;
///  - the ranks of a node agree on their flags and on the arena memory that they share.
///
/// `schedules[r]` is the schedule of rank r; all have the same layout. Threads: pure; any.
///
/// Two copies of staging memory suffice: when a rank starts iteration i + 2, which reuses the copy
/// of iteration i, it has completed i + 1, so the copy's readers have started i + 1 and completed
/// i.
///
/// Cost: time and memory grow with the square of the number of steps.
/// Source: happens-before by Lamport, CACM 1978; symbolic contributions as in MSCCL's checker.
std::optional<std::string> verify(std::span<const Schedule> schedules, const ProcessGrid& grid,
                                  const CollectiveSpec& spec, const VerifyOptions& options = {});

}  // namespace kolo
