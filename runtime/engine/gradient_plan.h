#pragma once

#include <cstdint>
#include <span>

#include "runtime/engine/gradient_group.h"
#include "runtime/engine/plan_context.h"

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

/// The fingerprint of the buckets of a set in host memory if its gradients are expected in `order`;
/// 0 if they would not be better than those that it began with. Allocates nothing.
std::uint64_t reordered_buckets(const GradientGroup& group, const PlanContext& context,
                                std::span<const std::size_t> order);

/// Plans the dense buckets anew by an order for which `reordered_buckets` is not 0, and the same on
/// all ranks. Gradients stay where they are. All ranks call it at the same point of the order of
/// decisions, after the same iteration. Errors: KoloError(kResources).
void reorder_gradients(GradientGroup& group, const PlanContext& context,
                       std::span<const std::size_t> order);

/// Gives back what a set has that no rank uses any more; see `BucketTable::remove`.
void remove_gradients(const GradientGroup& group, BucketTable& buckets);

}  // namespace kolo
