#pragma once

#include "comm/goals/goal_registry.h"

namespace kolo {

/// The predicted time of a goal by pinned mirrors, in microseconds: contributions come down from
/// the device, the ranks do `goal` in host memory, and results go up. `host` is the bucket's layout
/// there. Pure.
double predict_mirror_us(const Goal& goal, const BucketLayout& host, const GoalContext& context,
                         const GoalAlgorithmRequest& request);

/// The algorithm in device memory for a goal whose tensors are there: the one that is asked for, or
/// the cheapest, if it costs less than mirrors. Null: mirrors, by an algorithm of the host that is
/// asked for or costs less. `layout` is that of device memory. Before: arguments are equal on all
/// ranks. Pure.
const GoalAlgorithm* choose_device_goal(const Goal& goal, const BucketLayout& layout,
                                        const GoalContext& context,
                                        const GoalAlgorithmRequest& request);

}  // namespace kolo
