#pragma once

#include <cstdint>
#include <optional>

#include "runtime/engine/gradient_group.h"
#include "runtime/engine/gradient_tuner.h"
#include "runtime/plan/plan_context.h"

namespace kolo {

/// Plans an agreed gradient set: buckets, their schedules and places, and where each gradient
/// lives. All ranks call it at the same point of the order of decisions, so that all plan alike.
/// Errors: KoloError(kConfig) for an algorithm that does not fit, UsageError for device memory
///         without a device, alike on all ranks; KoloError(kResources).
void plan_gradients(GradientGroup& group, const PlanContext& context);

/// Replaces the dense buckets of a planned set in host memory by those of other options, or of
/// gradients of which some travel in another way now; those that came to be sparse get groups.
/// Gradients stay where they are. At the same point on all ranks, too, when all have ended the same
/// iteration.
/// Errors: KoloError(kResources).
void replan_gradients(GradientGroup& group, const PlanContext& context);

/// Gives back what a set has that no rank uses any more; see `BucketTable::remove`.
void remove_gradients(const GradientGroup& group, BucketTable& buckets);

/// Names the way in which these options would make a set travel, equal ways alike; empty if there
/// is no room for it beside the present one. Changes nothing.
std::optional<std::uint64_t> way_of_travel(const GradientGroup& group, const PlanContext& context);

/// The set, and what may be tuned of it: sizes that options leave open, if no bit depends on them.
TunedSet tuned_set(const GradientGroup& group, const PlanContext& context);

}  // namespace kolo
