#include "benchmarks/sim/predictions.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "comm/algorithms/compile.h"
#include "comm/algorithms/registry.h"
#include "comm/base/check.h"
#include "compression/compression_spec.h"
#include "fusion/bucket_planner.h"
#include "runtime/gradients/compression_choice.h"
#include "runtime/gradients/gradient_compression.h"

namespace kolo::bench {

// --- training steps ------------------------------------------------------------------------------

namespace {

/// Returns the time at which each gradient is ready on a rank that is neither late nor slow.
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

/// Returns the model's gradients as a program on this cluster would register them. Packed gradients
/// get the address `somewhere`, because their memory is not used.
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

/// Returns the time at which the last of the gradients `indices` is ready.
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

/// Returns the bytes that rank 0 sends to other nodes.
std::size_t wire_bytes(const SimulatorSchedules& schedules, const ProcessGrid& grid) {
  std::size_t bytes = 0;
  for (const SimulatorSchedules::Step& step : schedules.of_rank(0).steps) {
    if (step.kind == StepKind::kSend && !grid.same_node(0, step.peer)) bytes += step.bytes;
  }
  return bytes;
}

/// Predicts a step in which the compression of each gradient is decided.
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
  for (const CompressedTensors& group : plan_compressed(gradients)) {
    buckets.push_back(&cluster.schedules(sparse_options(group)));
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

// --- other collectives ---------------------------------------------------------------------------

namespace {

double played_us(Cluster& cluster, const CompileContext& context, const Algorithm& algorithm) {
  return cluster.run({&cluster.schedules(context.spec, context.layout, algorithm)}, {0})[0];
}

/// Simulates the schedules in host memory, and adds the price of copies from and to the device.
CollectiveTime by_bounce_buffers(Cluster& cluster, const CompileContext& context) {
  BucketLayout host = context.layout;
  host.memory = MemoryKind::kHost;
  const CompileContext by_host{context.spec, host, context.grid, context.options};
  const Choice choice = choose(by_host);
  const double copies_us = bounce_us(context.spec, host.dtype, context.grid.world_size(),
                                     context.options.link_costs.staging);
  return {.algorithm = "bounce",
          .predicted_us = copies_us + choice.price.us,
          .simulated_us = copies_us + played_us(cluster, by_host, *choice.algorithm)};
}

}  // namespace

std::vector<CollectiveTime> collective_times(Cluster& cluster, const std::string& collective,
                                             std::size_t bytes) {
  const ProcessGrid& grid = cluster.grid();
  const CollectiveSpec spec =
      even_spec(parse_collective_kind(collective), grid.world_size(), bytes / sizeof(float));
  const BucketLayout layout{.count = spec.count(),
                            .placement = Placement::kUser,
                            .memory = cluster.spec().memory,
                            .out_of_place = spec.kind != CollectiveKind::kBroadcast};
  const CompileContext context{spec, layout, grid, cluster.spec().compile};
  std::vector<CollectiveTime> times;
  for (const Choice& each : considered(context)) {
    const bool is_native = each.algorithm == &algorithms::native;
    times.push_back(
        {.algorithm = std::string(each.algorithm->name()),
         .predicted_us = each.price.us,
         .simulated_us = is_native ? each.price.us : played_us(cluster, context, *each.algorithm)});
  }
  if (layout.is_on_device()) times.push_back(by_bounce_buffers(cluster, context));
  std::ranges::min_element(times, {}, &CollectiveTime::predicted_us)->is_choice = true;
  return times;
}

// --- rows of kolo-bench --------------------------------------------------------------------------

namespace {

DType dtype_named(const std::string& name) {
  const auto dtype = parse_dtype(name);
  if (!dtype) refuse(ErrorCode::kData, "no dtype '" + name + "'");
  return *dtype;
}

MeasuredRow to_row(const nlohmann::json& json, const std::string& column) {
  const std::string collective = json.value("collective", "all-reduce");
  if (collective != "all-reduce") refuse(ErrorCode::kData, "rows of " + collective);
  const std::string name = json.at("dtype");
  const DType dtype = dtype_named(name);
  return {.bytes = json.at("size"),
          .dtype = dtype,
          .wire = is_float(dtype) ? dtype_named(json.value("wire_dtype", name)) : dtype,
          .algorithm = json.at("algorithm"),
          .ranks = json.at("ranks"),
          .nodes = json.at("nodes"),
          .in_arena = json.at("memory") == "arena",
          .in_place = json.value("in_place", true),
          .time_us = json.at(column),
          .link_costs = json.value("link_costs", std::string())};
}

/// Returns the time of an iteration's bytes in the busiest direction of a node's link.
double busiest_link_us(const SimulatorSchedules& schedules, const ProcessGrid& grid,
                       const LinkCosts& costs) {
  std::vector<double> out(static_cast<std::size_t>(grid.num_nodes())), in(out);
  for (int rank = 0; rank < grid.world_size(); ++rank) {
    for (const SimulatorSchedules::Step& step : schedules.of_rank(rank).steps) {
      if (step.kind != StepKind::kSend || grid.same_node(rank, step.peer)) continue;
      const auto bytes = static_cast<double>(step.bytes);
      for (const auto& [direction, node] :
           {std::pair(&out, grid.node(rank)), std::pair(&in, grid.node(step.peer))}) {
        (*direction)[static_cast<std::size_t>(node)] += bytes / costs.node_rate(node);
      }
    }
  }
  return std::max(*std::max_element(out.begin(), out.end()),
                  *std::max_element(in.begin(), in.end()));
}

/// Returns the chunk size that the runtime uses by default.
std::size_t auto_chunk_bytes(const MeasuredRow& row, const LinkCosts& costs) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes(
      std::vector<int>(static_cast<std::size_t>(row.nodes), row.ranks / row.nodes));
  const CollectiveSpec spec = CollectiveSpec::all_reduce(row.ranks);
  const BucketLayout layout = row.layout();
  const CompileOptions options{.algorithm = row.algorithm, .link_costs = costs};
  const CompileContext context{spec, layout, grid, options};
  return choose(context).chunk_bytes(context);
}

}  // namespace

std::vector<MeasuredRow> read_measured(const std::string& file, const std::string& column) {
  std::ifstream stream(file);
  if (!stream || std::filesystem::is_directory(file)) {
    refuse(ErrorCode::kIo, "cannot read " + file);
  }
  std::vector<MeasuredRow> rows;
  try {
    for (const nlohmann::json& json : nlohmann::json::parse(stream)) {
      const bool is_on_host = json.at("memory") == "arena" || json.at("memory") == "user";
      if (json.at("system") != "kolo" || !is_on_host || json.at(column).is_null()) continue;
      MeasuredRow row = to_row(json, column);
      if (!row.is_copied_first()) rows.push_back(std::move(row));
    }
  } catch (const nlohmann::json::exception& e) {
    refuse(ErrorCode::kData, fmt::format("{}: not the JSON of kolo-bench ({})", file, e.what()));
  }
  if (rows.empty()) {
    refuse(ErrorCode::kData,
           fmt::format("{}: no rows of kolo in host memory with {}", file, column));
  }
  return rows;
}

double predict_us(const MeasuredRow& row, const MachineCosts& costs,
                  const CompileOptions& compile) {
  if (row.nodes < 1 || row.ranks % row.nodes != 0) {
    refuse(ErrorCode::kData, fmt::format("{} ranks do not fill {} nodes", row.ranks, row.nodes));
  }
  CompileOptions options = compile;
  options.algorithm = row.algorithm;
  if (options.chunk_bytes == 0) options.chunk_bytes = auto_chunk_bytes(row, costs.links);
  Cluster cluster({.nodes = row.nodes,
                   .ranks_per_node = row.ranks / row.nodes,
                   .costs = costs,
                   .compile = options,
                   .full = true});
  const BucketLayout layout = row.layout();
  const double once_us = cluster.run({layout}, {0})[0];
  return std::max(once_us, busiest_link_us(cluster.schedules(layout), cluster.grid(), costs.links));
}

}  // namespace kolo::bench
