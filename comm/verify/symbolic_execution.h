#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/verify/happens_before.h"
#include "comm/verify/verifier.h"

namespace kolo {

/// Native steps of different ranks that belong together, in ascending order of rank. The key is a
/// node for their meeting, before which none of them can complete.
using Meetings = std::map<AllSteps::Node, std::vector<AllSteps::Node>>;

/// Executes `steps` without data, in the order `order`, which also contains meetings, and compares
/// the receivers' results with the spec. Returns the first error. Source: symbolic contributions as
/// in MSCCL's checker. Threads: any; pure.
std::optional<std::string> play_symbolically(const AllSteps& steps,
                                             std::span<const AllSteps::Node> order,
                                             const Meetings& meetings, const CollectiveSpec& spec);

}  // namespace kolo
