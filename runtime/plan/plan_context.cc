#include "runtime/plan/plan_context.h"

#include "comm/base/check.h"
#include "topology/cache.h"

namespace kolo {

CompileOptions compile_options(const PlanContext& context, const BucketLayout& layout) {
  const Options& options = context.options;
  const bool on_device = layout.memory == MemoryKind::kDevice;
  check(!on_device || context.lane != nullptr,
        "device memory needs a device: set the option `device`, e.g. KOLO_DEVICE=cuda");
  CompileOptions result{
      .algorithm = on_device ? context.device_algorithm : context.algorithm,
      .network_window = options.network_window,
      .device_chunk_bytes = options.device_chunk_bytes,
      .network_takes_device_memory = on_device && context.lane->network_takes_memory(),
      .native_spans_nodes = on_device && context.lane->has_world_group(),
      .link_costs = context.costs};
  result.chunk_bytes = options.chunk_bytes != kAutoBytes
                           ? options.chunk_bytes
                           : cheapest_chunk_bytes(layout, context.grid, result);
  return result;
}

std::size_t fusion_bytes(const PlanContext& context, std::size_t bytes) {
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

Stores unpack_stores(const BucketLayout& layout, const PlanContext& context) {
  const int node = context.grid.node(context.transport.rank());
  const std::size_t bytes =
      layout.count * size_of(layout.dtype) * context.grid.ranks_of_node(node).size();
  const std::size_t cache_bytes = last_level_cache_bytes();
  return cache_bytes > 0 && bytes > cache_bytes ? Stores::kStreaming : Stores::kCached;
}

double finishing_scale(ReduceOp op, const ProcessGrid& grid) {
  return op == ReduceOp::kAverage ? 1.0 / grid.world_size() : 1.0;
}

}  // namespace kolo
