#include "benchmarks/sim_step.h"

#include <algorithm>
#include <vector>

#include "comm/collective/chunking.h"
#include "fusion/bucket_planner.h"

namespace kolo::bench {
namespace {

/// When each gradient is ready, on a rank that is neither late nor slow.
std::vector<double> ready_times(const ModelPreset& model, double compute_us) {
  const double us_per_flop = compute_us / (3 * model.forward_flops());
  double now = us_per_flop * model.forward_flops();
  std::vector<double> ready_us(model.gradients.size());
  for (std::size_t i = ready_us.size(); i-- > 0;) {
    now += us_per_flop * 2 * model.flops[i];
    ready_us[i] = now;
  }
  return ready_us;
}

Plan plan(const Cluster& cluster, const StepSpec& spec) {
  const ClusterSpec& job = cluster.spec();
  std::vector<GradientSpec> gradients = spec.model.gradients;
  // Where tensors are packed only matters in that they are somewhere.
  float somewhere = 0;
  for (GradientSpec& gradient : gradients) {
    gradient.memory = job.memory;
    if (job.placement != Placement::kInPlace) gradient.data = &somewhere;
  }
  return plan_buckets(gradients, {.gradients = {.wire_dtype = spec.wire_dtype},
                                  .fusion_bytes = spec.fusion_bytes,
                                  .device_fusion_bytes = spec.device_fusion_bytes});
}

}  // namespace

StepTimes predict_step(Cluster& cluster, const StepSpec& spec) {
  StepTimes times;
  const double flops = 3 * spec.model.forward_flops() * spec.model.batch;
  times.compute_us = spec.compute_us.value_or(flops / spec.flops_per_us);
  const std::vector<double> ready_us = ready_times(spec.model, times.compute_us);

  std::vector<BucketLayout> layouts;
  std::vector<double> bucket_ready_us;
  for (const PlannedBucket& bucket : plan(cluster, spec).buckets) {
    BucketLayout layout = cluster.layout(bucket.layout.count, bucket.layout.dtype);
    layout.placement = bucket.layout.placement;
    layouts.push_back(layout);
    double last_us = 0;
    for (const PlannedSegment& segment : bucket.segments) {
      last_us = std::max(last_us, ready_us[segment.gradient]);
    }
    bucket_ready_us.push_back(last_us);
  }
  times.buckets = layouts.size();

  double slowest_us = 0;
  const Lateness& lateness = cluster.lateness();
  for (std::size_t rank = 0; rank < lateness.late_us.size(); ++rank) {
    slowest_us =
        std::max(slowest_us, lateness.late_us[rank] + times.compute_us * lateness.slowness[rank]);
  }
  times.step_us = slowest_us;
  if (cluster.grid().world_size() > 1) {
    for (double done_us : cluster.run(layouts, bucket_ready_us)) {
      times.step_us = std::max(times.step_us, done_us);
    }
  }
  times.exposed_us = times.step_us - slowest_us;
  return times;
}

}  // namespace kolo::bench
