#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/schedule/goal.h"
#include "comm/schedule/schedule.h"
#include "topology/process_grid.h"

namespace kolo {

/// Abilities of the job's network.
struct VerifyOptions {
  /// Messages may come from and go to device memory, without staging.
  bool network_takes_device_memory = false;
};

/// Plays the schedules of all ranks without data. Returns the first thing found wrong, with rank
/// and step, or nothing if, for every possible timing:
///
///  - every element of a part ends at its receivers, in its place, with each contributor's exactly
///    once, scaled once (when there was anything to reduce); ranks read nothing of their own in the
///    parts to which they do not contribute;
///  - every send meets one receive of equal length, every signal one await;
///  - payloads are whole, and those of a send and its receive planned alike; contributions are
///    merged in the order of ranks;
///  - every native step meets the like of it at all ranks of its group, and all ranks launch those
///    they share in one order; what a rank's step waits for, that of the first rank does, too, so
///    that steps of other buckets may come between;
///  - nothing waits in a circle, even if a send lasts until its receive is posted and a native step
///    until all its ranks have come;
///  - where results replace contributions, all of these are read before any is replaced;
///  - no two unordered steps, of the same or of different ranks, touch one range when one of them
///    writes;
///  - a rank's memory is touched by others only after one of its steps and before another, so never
///    outside its iteration; where staging memory takes turns, it may still be touched later if the
///    rank has heard from the visitor, which has then begun the iteration;
///  - memory and flags of a peer are used only within its node and never of a device bucket, whose
///    messages use staging memory, and nothing is read before it is written;
///  - the ranks of a node agree about their flags and about the arena memory that they share.
///
/// `schedules[r]` is rank r's; all have the same layout. Threads: pure; any.
/// Why two turns suffice: when a rank begins iteration i + 2, which uses the slots of iteration i
/// again, it has ended i + 1, so the readers of those slots have begun i + 1 and ended i.
///
/// Cost: time and memory grow with the square of the number of steps.
/// Source: happens-before by Lamport, CACM 1978; symbolic contributions as in MSCCL's checker.
std::optional<std::string> verify(std::span<const Schedule> schedules, const ProcessGrid& grid,
                                  const Goal& goal, const VerifyOptions& options = {});

}  // namespace kolo
