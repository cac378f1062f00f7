#include "benchmarks/sim/sim_step.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "comm/algorithms/choose.h"
#include "compression/compression_rules.h"
#include "fusion/bucket_planner.h"
#include "runtime/plan/compression_choice.h"
#include "runtime/plan/compression_plan.h"
#include "runtime/plan/gradient_compression.h"

namespace kolo::bench {
namespace {

/// The time at which each gradient is ready, on a rank that is neither late nor slow.
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

/// The model's gradients as a program of this cluster would register them. For packed tensors, any
/// address serves.
std::vector<GradientSpec> gradients_of(const Cluster& cluster, const StepSpec& spec,
                                       float& somewhere) {
  std::vector<GradientSpec> gradients = spec.model.gradients;
  for (GradientSpec& gradient : gradients) {
    gradient.memory = cluster.spec().memory;
    if (cluster.spec().placement != Placement::kInPlace) gradient.data = &somewhere;
  }
  resolve_compression(gradients, CompressionRules::parse(spec.compression));
  return gradients;
}

/// The time at which the last of some gradients is ready.
template <typename Indices>
double last_of(const std::vector<double>& ready_us, const Indices& indices) {
  double last_us = 0;
  for (const std::size_t index : indices) last_us = std::max(last_us, ready_us[index]);
  return last_us;
}

std::vector<std::size_t> gradients_in(const PlannedBucket& bucket) {
  std::vector<std::size_t> indices;
  for (const PlannedSegment& segment : bucket.segments) indices.push_back(segment.gradient);
  return indices;
}

/// Bytes that the first rank sends to other nodes.
std::size_t wire_bytes(const SimulatorSchedules& schedules, const ProcessGrid& grid) {
  std::size_t bytes = 0;
  for (const SimulatorSchedules::Step& step : schedules.of_rank(0).steps) {
    if (step.kind == StepKind::kSend && !grid.same_node(0, step.peer)) bytes += step.bytes;
  }
  return bytes;
}

/// A step of gradients whose specs leave no choice.
StepTimes times_of(Cluster& cluster, const StepSpec& spec,
                   const std::vector<GradientSpec>& gradients) {
  StepTimes times;
  const double flops = 3 * spec.model.forward_flops() * spec.model.batch;
  times.compute_us = spec.compute_us.value_or(flops / spec.flops_per_us);
  const std::vector<double> ready_us = ready_times(spec.model, times.compute_us);

  std::size_t device_bytes = spec.device_fusion_bytes;
  if (device_bytes == kAutoBytes && cluster.spec().memory == MemoryKind::kDevice) {
    device_bytes =
        cheapest_bucket_bytes(spec.model.parameters() * sizeof(float), MemoryKind::kDevice,
                              cluster.grid(), cluster.spec().compile);
  }
  const Plan plan = plan_buckets(gradients, {.gradients = {.wire_dtype = spec.wire_dtype},
                                             .fusion_bytes = spec.fusion_bytes,
                                             .device_fusion_bytes = device_bytes});
  std::vector<const SimulatorSchedules*> buckets;
  std::vector<double> bucket_ready_us;
  for (const PlannedBucket& bucket : plan.buckets) {
    BucketLayout layout = cluster.layout(bucket.layout.count, bucket.layout.dtype);
    layout.placement = bucket.layout.placement;
    buckets.push_back(&cluster.schedules(layout));
    bucket_ready_us.push_back(last_of(ready_us, gradients_in(bucket)));
  }
  for (const PlannedGroup& group : plan_groups(gradients)) {
    buckets.push_back(&cluster.schedules(sparse_options(group, gradients)));
    bucket_ready_us.push_back(last_of(ready_us, group.gradients));
    ++times.sparse_buckets;
  }
  times.buckets = buckets.size();
  for (const SimulatorSchedules* bucket : buckets) {
    times.wire_bytes += wire_bytes(*bucket, cluster.grid());
  }

  double slowest_us = 0;
  const Lateness& lateness = cluster.lateness();
  for (std::size_t rank = 0; rank < lateness.late_us.size(); ++rank) {
    slowest_us =
        std::max(slowest_us, lateness.late_us[rank] + times.compute_us * lateness.slowness[rank]);
  }
  times.step_us = slowest_us;
  if (cluster.grid().world_size() > 1) {
    for (double done_us : cluster.run(buckets, bucket_ready_us)) {
      times.step_us = std::max(times.step_us, done_us);
    }
  }
  times.exposed_us = times.step_us - slowest_us;
  return times;
}

}  // namespace

StepTimes predict_step(Cluster& cluster, const StepSpec& spec) {
  float somewhere = 0;
  const LinkCosts& links = cluster.spec().costs.links;
  std::vector<GradientSpec> gradients = gradients_of(cluster, spec, somewhere);
  CompressionChoices choices = choose_compression(gradients, cluster.grid(), links);
  StepTimes times = times_of(cluster, spec, gradients);
  if (!choices.open.empty()) {
    const DenseSteps dense{.step_us = times.step_us, .exposed_us = times.exposed_us};
    if (settle_compression(gradients, choices, dense, cluster.grid(), links)) {
      times = times_of(cluster, spec, gradients);
    }
  }
  times.decisions = std::move(choices.decisions);
  return times;
}

}  // namespace kolo::bench
