#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "fusion/bucket_planner.h"
#include "runtime/buckets/bucket_plan.h"
#include "runtime/buckets/plan_context.h"
#include "runtime/gradients/gradient_set_state.h"

namespace kolo {

/// The dense buckets of a gradient set, for which nothing is allocated yet.
struct GradientDraft {
  Plan plan;
  std::vector<BucketPlan> buckets;
  std::size_t fusion_bytes = 0;  ///< The target size of buckets.
};

/// Chooses buckets and algorithms by prices, and compiles the schedules. Threads: pure; any.
/// Errors: KoloError(kConfig) for an algorithm that does not fit, UsageError for device memory
///         without a device, both on all ranks.
GradientDraft draft_gradients(const GradientSetState& set, const PlanContext& context);

/// Describes each bucket in a line. The text must be equal on all ranks. Prices are floating-point
/// numbers, so processors and libraries that round differently may choose differently.
std::string describe(const GradientDraft& draft);

/// Plans a gradient set on whose draft all ranks have agreed: its buckets, their schedules and
/// offsets, and the memory of each gradient. All ranks call it at the same point in the order of
/// decisions, so their plans are equal. Errors: KoloError(kResources).
void plan_gradients(GradientSetState& group, const PlanContext& context, GradientDraft draft);

/// Plans a set in host memory again after some gradients were chosen for compression: new dense
/// buckets replace the old ones, and sparse gradients get compressed buckets. Gradients keep their
/// memory. All ranks call it at the same point in the order of decisions, after the same iteration.
/// Errors: KoloError(kResources).
void replan_gradients(GradientSetState& group, const PlanContext& context);

/// Gives back the buckets of a set that no rank uses any more; see `BucketTable::remove`.
void remove_gradients(const GradientSetState& group, BucketTable& buckets);

}  // namespace kolo
