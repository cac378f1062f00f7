#include "runtime/buckets/plan_context.h"

#include "comm/algorithms/compile.h"

namespace kolo {

PlanInputs PlanContext::inputs() const {
  PlanInputs inputs{.rank = transport.rank(),
                    .grid = grid,
                    .options = options,
                    .costs = costs,
                    .tuning = tuning,
                    .algorithm = algorithm,
                    .cache_bytes = cache_bytes};
  if (streams != nullptr) {
    inputs.device = {.network_takes_memory = streams->network_takes_memory(),
                     .native_spans_nodes = streams->has_world_group(),
                     .native_in_nodes = streams->has_node_group()};
  }
  return inputs;
}

bool fails_alike(const Error& error) {
  return error.code == ErrorCode::kUsage || error.code == ErrorCode::kConfig;
}

std::size_t fusion_bytes(const PlanContext& context, MemoryKind memory, std::size_t bytes,
                         Placement placement) {
  const bool on_device = memory == MemoryKind::kDevice;
  const Options& options = context.options;
  const std::size_t asked = on_device ? options.device_fusion_bytes : options.fusion_bytes;
  if (asked != kAutoBytes) return asked;
  if (on_device && bytes == 0) return 0;  // This rank may have no device.
  return cheapest_bucket_bytes(bytes, memory, context.grid,
                               compile_options(memory, context.inputs()), placement);
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
  return std::make_shared<DevicePacker>(context.streams->device(), segments, options);
}

}  // namespace kolo
