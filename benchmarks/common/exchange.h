#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/api/kolo.h"

namespace kolo::bench {

/// Exchanges between the ranks of a benchmark by Kolo's own all-reduce, without a shared file
/// system or a server. Both are collective.

/// Replaces each value by the largest of all ranks.
void max_over_ranks(Runtime& runtime, std::span<double> values);

/// The values of all ranks, by rank. `topic` is new for every call.
std::vector<std::string> all_gather(Runtime& runtime, std::string_view topic,
                                    const std::string& mine);

}  // namespace kolo::bench
