#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "comm/schedule/goal.h"

namespace kolo {

/// "all-reduce", "reduce", "broadcast", ...; empty for kOther.
std::string_view to_string(GoalKind kind);

/// The names of all kinds but kOther.
std::vector<std::string> goal_kind_names();

/// A goal whose parts are equal and as large as a buffer of `count` elements allows, which holds
/// the parts of all ranks, or those that one rank has for all; rank 0 is its root. For tools.
/// Errors: UsageError that lists the names.
Goal even_goal(std::string_view kind, int ranks, std::size_t count);

}  // namespace kolo
