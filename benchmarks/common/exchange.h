#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/api/kolo.h"

namespace kolo::bench {

/// What the ranks of a benchmark tell each other, by Kolo's own all-reduce: no shared file system
/// and no server is needed. Both are collective.

/// Replaces each value by the greatest of all ranks.
void max_over_ranks(Runtime& runtime, std::span<double> values);

/// What every rank gave, by rank. `topic` is new for every call.
std::vector<std::string> all_gather(Runtime& runtime, std::string_view topic,
                                    const std::string& mine);

}  // namespace kolo::bench
