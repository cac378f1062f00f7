#include "runtime/plan_context.h"

#include "comm/base/check.h"
#include "topology/link_costs.h"

namespace kolo {

CompileOptions compile_options(const PlanContext& context, MemoryKind memory) {
  const Options& options = context.options;
  const bool on_device = memory == MemoryKind::kDevice;
  check(!on_device || context.lane != nullptr,
        "device memory needs a device: set the option `device`, e.g. KOLO_DEVICE=cuda");
  return {.algorithm = on_device ? options.device_algorithm : options.algorithm,
          .chunk_bytes = options.chunk_bytes,
          .device_chunk_bytes = options.device_chunk_bytes,
          .network_takes_device_memory = on_device && context.lane->network_takes_memory(),
          .native_spans_nodes = on_device && context.lane->has_world_group(),
          .link_costs = parse_link_costs(options.link_costs)};
}

std::shared_ptr<DevicePacker> make_device_packer(const PlanContext& context,
                                                 const Schedule& schedule,
                                                 std::span<const Segment> segments) {
  DevicePackerOptions options{.bucket_dtype = schedule.layout.dtype,
                              .bucket_count = schedule.layout.count};
  for (const Step& step : schedule.steps) {
    if (step.kind != StepKind::kPack && step.kind != StepKind::kUnpack) continue;
    const Range& bucket = step.kind == StepKind::kPack ? step.target : step.sources[0];
    options.cuts.push_back(bucket.offset);
    options.cuts.push_back(bucket.end());
  }
  return std::make_shared<DevicePacker>(context.lane->device(), segments, options);
}

double finishing_scale(ReduceOp op, const ProcessGrid& grid) {
  return op == ReduceOp::kAverage ? 1.0 / grid.world_size() : 1.0;
}

}  // namespace kolo
