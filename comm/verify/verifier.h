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
  /// Messages may be in device memory, without staging.
  bool network_takes_device_memory = false;
};

/// Executes the schedules of all ranks without data. Returns the first error found, with rank and
/// step, or empty if, for every possible timing:
///
///  - every element of a part ends at its receivers, in its place, with each contributor's value
///    exactly once, scaled once (if it was reduced); ranks do not read their own data in parts to
///    which they do not contribute;
///  - every send matches one receive of equal length, every signal one await;
///  - payloads are whole, and planned alike for a send and its receive; contributions are merged
///    in rank order;
///  - every native step meets its counterpart at all ranks of its group, and all ranks launch
///    shared native steps in one order; the first rank's step depends on everything that another
///    rank's step depends on, so that steps of other buckets may come between;
///  - there is no deadlock, even if a send lasts until its receive is posted and a native step
///    until all its ranks have come;
///  - if results replace contributions, all contributions are read before any is replaced;
///  - no two unordered steps, of the same or of different ranks, touch one range when one of them
///    writes;
///  - other ranks access a rank's memory only after one of its steps and before another, so never
///    outside its iteration; if staging memory takes turns, a peer may still access it later if the
///    rank has heard from that peer, which has then begun the iteration;
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
                                  const CollectiveSpec& spec, const VerifyOptions& options = {});

}  // namespace kolo
