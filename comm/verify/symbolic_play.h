#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/verify/happens_before.h"
#include "comm/verify/verifier.h"

namespace kolo {

/// Matching native steps, in ascending order of rank, by the node of their meeting.
using Meetings = std::map<AllSteps::Node, std::vector<AllSteps::Node>>;

/// Executes `steps` without data, one after the other in `order`, which also contains meetings, and
/// compares the receivers' results with the spec. Returns the first error found. Source: symbolic
/// contributions as in MSCCL's checker. Threads: any; pure.
std::optional<std::string> play_symbolically(const AllSteps& steps,
                                             std::span<const AllSteps::Node> order,
                                             const Meetings& meetings, const CollectiveSpec& spec);

}  // namespace kolo
