#include "comm/goals/device/device_goal.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "comm/collective/selection.h"

namespace kolo {
namespace {

/// The most bytes of one rank that come down, and that go up.
struct Copied {
  double down = 0, up = 0;

  double us(const LinkCost& bus) const {
    return (down > 0 ? bus.latency_us + down / bus.bytes_per_us : 0) +
           (up > 0 ? bus.latency_us + up / bus.bytes_per_us : 0);
  }
};

Copied copied_bytes(const Goal& goal, const BucketLayout& layout, int ranks) {
  std::vector<std::size_t> given(static_cast<std::size_t>(ranks)), got(given);
  for (const Goal::Part& part : goal.parts) {
    for (const int rank : part.contributors) {
      given[static_cast<std::size_t>(rank)] += part.extent.count;
    }
    for (const int rank : part.receivers) got[static_cast<std::size_t>(rank)] += part.extent.count;
  }
  const auto bytes = static_cast<double>(size_of(layout.dtype));
  return {.down = bytes * static_cast<double>(std::ranges::max(given)),
          .up = bytes * static_cast<double>(std::ranges::max(got))};
}

/// All-reduces have algorithms of their own.
double predict_all_reduce_us(const BucketLayout& host, const GoalContext& context) {
  CompileOptions options = context.options;
  options.algorithm = {};
  return CostModel(context.grid, options.link_costs)
      .predict_us(resolve_algorithm(host, context.grid, options), host_bucket(host));
}

}  // namespace

double predict_mirror_us(const Goal& goal, const BucketLayout& host, const GoalContext& context,
                         const GoalAlgorithmRequest& request) {
  const double copies_us =
      copied_bytes(goal, host, context.grid.world_size()).us(context.options.link_costs.staging);
  if (goal.kind == GoalKind::kAllReduce) return copies_us + predict_all_reduce_us(host, context);
  return copies_us +
         predict_us(resolve_goal_algorithm(goal, host, context, request), goal, host, context);
}

const GoalAlgorithm* choose_device_goal(const Goal& goal, const BucketLayout& layout,
                                        const GoalContext& context,
                                        const GoalAlgorithmRequest& request) {
  BucketLayout host = layout;
  host.memory = MemoryKind::kHost;
  host.placement = Placement::kUser;
  const GoalAlgorithm* const asked = request.algorithm();
  const Goal by_host = merged(goal);
  const bool is_for_host = asked != nullptr && asked->serves(by_host, host, context.grid);
  if (is_for_host) return nullptr;
  const GoalAlgorithm* cheapest = nullptr;
  double least_us = std::numeric_limits<double>::infinity();
  for (const GoalAlgorithm* each : goal_algorithms_of_all()) {
    if (!each->serves(goal, layout, context.grid)) continue;
    const double us = predict_us(*each, goal, layout, context);
    if (std::isinf(us)) continue;
    if (each == asked) return asked;
    if (us >= least_us) continue;
    cheapest = each;
    least_us = us;
  }
  return least_us < predict_mirror_us(by_host, host, context, {}) ? cheapest : nullptr;
}

}  // namespace kolo
