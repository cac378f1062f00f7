#pragma once

#include "runtime/buckets/plan_context.h"
#include "runtime/gradients/gradient_set_state.h"

namespace kolo {

/// Plans a gradient set on which all ranks have agreed: its buckets, their schedules and offsets,
/// and the memory of each gradient. All ranks call it at the same point in the order of decisions,
/// so their plans are equal.
/// Errors: KoloError(kConfig) for an algorithm that does not fit, UsageError for device memory
///         without a device, both on all ranks; KoloError(kResources).
void plan_gradients(GradientSetState& group, const PlanContext& context);

/// Plans a set in host memory again after some gradients were chosen for compression: new dense
/// buckets replace the old ones, and sparse gradients get compressed buckets. Gradients keep their
/// memory. All ranks call it at the same point in the order of decisions, after the same iteration.
/// Errors: KoloError(kResources).
void replan_gradients(GradientSetState& group, const PlanContext& context);

/// Gives back the buckets of a set that no rank uses any more; see `BucketTable::remove`.
void remove_gradients(const GradientSetState& group, BucketTable& buckets);

}  // namespace kolo
