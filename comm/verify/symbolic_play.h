#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/verify/happens_before.h"
#include "comm/verify/verifier.h"

namespace kolo {

/// Native steps that meet, in ascending order of rank, by the node of their meeting.
using Meetings = std::map<AllSteps::Node, std::vector<AllSteps::Node>>;

/// Plays `steps` without data, one after the other in `order`, which holds meetings too, and
/// compares what the receivers end with to the goal. Returns the first thing found wrong.
/// Source: symbolic contributions as in MSCCL's checker. Threads: pure; any.
std::optional<std::string> play_symbolically(const AllSteps& steps,
                                             std::span<const AllSteps::Node> order,
                                             const Meetings& meetings, const Goal& goal);

}  // namespace kolo
