#include "runtime/engine/plan_context.h"

namespace kolo {

PlanInputs PlanContext::inputs() const {
  PlanInputs inputs{.rank = transport.rank(),
                    .grid = grid,
                    .options = options,
                    .costs = costs,
                    .algorithm = algorithm,
                    .device_algorithm = device_algorithm,
                    .collective_algorithm = collective_algorithm,
                    .cache_bytes = cache_bytes};
  if (lane != nullptr) {
    inputs.device = {.network_takes_memory = lane->network_takes_memory(),
                     .native_spans_nodes = lane->has_world_group(),
                     .native_in_nodes = lane->has_node_group()};
    // Hierarchies begin with collectives of a node.
    if (!lane->has_node_group()) inputs.device_algorithm = "native";
  }
  return inputs;
}

bool fails_alike(const Error& error) {
  return error.code == ErrorCode::kUsage || error.code == ErrorCode::kConfig;
}

namespace {

std::size_t device_fusion_bytes(const PlanContext& context, std::size_t bytes) {
  const Options& options = context.options;
  if (options.device_fusion_bytes != kAutoBytes) return options.device_fusion_bytes;
  if (bytes == 0) return 0;  // There need not be a device.
  const PlanInputs inputs = context.inputs();
  const DeviceTraits device = inputs.device.value_or(DeviceTraits{});
  return cheapest_device_buckets(bytes, context.grid,
                                 {.algorithm = inputs.device_algorithm,
                                  .device_chunk_bytes = options.device_chunk_bytes,
                                  .network_takes_device_memory = device.network_takes_memory,
                                  .native_spans_nodes = device.native_spans_nodes,
                                  .link_costs = context.costs});
}

}  // namespace

std::size_t fusion_bytes(const PlanContext& context, MemoryKind memory, std::size_t bytes) {
  if (memory == MemoryKind::kDevice) return device_fusion_bytes(context, bytes);
  const Options& options = context.options;
  if (options.fusion_bytes != kAutoBytes) return options.fusion_bytes;
  const HostBucket all{.bytes = bytes};
  const AlgorithmRequest& asked = context.algorithm;
  const CostModel measured(context.grid, context.costs);
  // Which hierarchy it will be is open, and most of them do not sum in one place.
  const LinkCosts costs =
      asked.is_any_hierarchy()
          ? LinkCosts{}
          : costs_for_sizes(asked.is_auto() ? measured.choose(all) : *asked.algorithm(),
                            context.costs);
  return CostModel(context.grid, costs).fusion_bytes(all);
}

std::shared_ptr<DevicePacker> make_device_packer(const PlanContext& context,
                                                 const Schedule& schedule,
                                                 std::span<const Segment> segments,
                                                 const DevicePacking& packing) {
  DevicePackerOptions options{.bucket_dtype = schedule.layout.dtype,
                              .bucket_count = schedule.layout.count,
                              .unpack_scale = packing.unpack_scale,
                              .out_of_place = packing.out_of_place};
  for (const Step& step : schedule.steps) {
    if (step.kind != StepKind::kPack && step.kind != StepKind::kUnpack) continue;
    const Range& bucket = step.kind == StepKind::kPack ? step.target : step.sources[0];
    options.cuts.push_back(bucket.offset);
    options.cuts.push_back(bucket.end());
  }
  return std::make_shared<DevicePacker>(context.lane->device(), segments, options);
}

}  // namespace kolo
