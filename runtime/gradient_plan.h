#pragma once

#include "runtime/gradient_group.h"
#include "runtime/plan_context.h"

namespace kolo {

/// Plans an agreed gradient set: buckets, their schedules and places, and where each gradient
/// lives. All ranks call it at the same point of the order of decisions, so that all plan alike.
/// Errors: KoloError(kConfig) for an algorithm that does not fit, UsageError for device memory
///         without a device, alike on all ranks; KoloError(kResources).
void plan_gradients(GradientGroup& group, const PlanContext& context);

}  // namespace kolo
