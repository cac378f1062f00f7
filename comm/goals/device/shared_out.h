#pragma once

#include "comm/goals/device/places.h"
#include "comm/goals/goal_algorithm.h"

namespace kolo {

/// A reduce or broadcast between nodes, in pieces of which each place has a share; ==> is between
/// peers, which have the same place in two nodes:
///
///   reduce      in each node a sum of each share; share ==> up a tree of nodes, which add theirs;
///               shares -> root
///   broadcast   root -> shares, in its node; share ==> down the tree; in each node all shares to
///               all
///
/// Pure. Before: goal.count() > 0.
void append_shared_out(ScheduleBuilder& builder, const Goal& goal, const Places& places,
                       const GoalContext& context);

}  // namespace kolo
