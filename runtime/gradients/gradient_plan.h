#pragma once

#include "runtime/buckets/plan_context.h"
#include "runtime/gradients/gradient_group.h"

namespace kolo {

/// Plans an agreed gradient set: buckets, their schedules and places, and where each gradient
/// lives. All ranks call it at the same point of the order of decisions, so that all plan alike.
/// Errors: KoloError(kConfig) for an algorithm that does not fit, UsageError for device memory
///         without a device, alike on all ranks; KoloError(kResources).
void plan_gradients(GradientGroup& group, const PlanContext& context);

/// Plans a set in host memory anew after some gradients came to be compressed: new dense buckets
/// replace the old ones, and sparse gradients get groups. Gradients stay where they are. All ranks
/// call it at the same point of the order of decisions, after the same iteration.
/// Errors: KoloError(kResources).
void replan_gradients(GradientGroup& group, const PlanContext& context);

/// Gives back what a set has that no rank uses any more; see `BucketTable::remove`.
void remove_gradients(const GradientGroup& group, BucketTable& buckets);

}  // namespace kolo
