#include "runtime/buckets/bucket_plan.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "comm/algorithms/all_reduce/all_reduce.h"
#include "comm/algorithms/compile.h"
#include "comm/base/check.h"

namespace kolo {
namespace {

/// Returns the total bytes of the contributions and results of all ranks of this node.
std::size_t tensor_bytes(const BucketRequest& request, const PlanInputs& inputs) {
  const ProcessGrid& grid = inputs.grid;
  const BucketLayout& layout = request.layout;
  const std::vector<int>& near = grid.ranks_of_node(grid.node(inputs.rank));
  std::size_t elements = 0;
  for (const CollectiveSpec::Part& part : request.spec.parts()) {
    const std::size_t end = std::min(part.extent.end(), layout.count);
    if (end <= part.extent.offset) continue;
    std::size_t tensors = 0;
    for (const int rank : near) {
      const bool gives = part.contributes(rank), gets = part.receives(rank);
      if (gives) ++tensors;
      if (gets && (layout.out_of_place || !gives)) ++tensors;
    }
    elements += (end - part.extent.offset) * tensors;
  }
  return elements * size_of(layout.dtype);
}

/// Chooses the stores by which a host bucket writes results to tensors: past the cache if the
/// tensors of the node's ranks exceed 1.5 times the cache. Up to that size most collectives are
/// faster through the cache, beyond twice the cache few are.
Stores unpack_stores(const BucketRequest& request, const PlanInputs& inputs) {
  const std::size_t cache = inputs.cache_bytes;
  const bool is_far_larger = cache > 0 && 2 * tensor_bytes(request, inputs) > 3 * cache;
  return is_far_larger ? Stores::kStreaming : Stores::kCached;
}

/// Works like `unpack_stores`, for sums. Streaming pays off at smaller sizes here, because vector
/// stores through the cache first read the cache lines that they overwrite.
Stores sum_stores(const BucketRequest& request, const PlanInputs& inputs) {
  const std::size_t cache = inputs.cache_bytes;
  const bool is_larger = cache > 0 && tensor_bytes(request, inputs) > cache;
  return is_larger ? Stores::kStreaming : Stores::kCached;
}

/// Chooses the stores by which contributions are written to slots that another rank sums.
Stores exposure_stores(const PlanInputs& inputs) {
  return inputs.costs.memory.packs_past_cache() ? Stores::kStreaming : Stores::kCached;
}

void prove(const BucketRequest& request, const PlanInputs& inputs) {
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < inputs.grid.world_size(); ++rank) {
    schedules.push_back(request.compile(rank));
  }
  const VerifyOptions options{.network_takes_device_memory =
                                  inputs.device && inputs.device->network_takes_memory};
  const auto wrong = verify(schedules, inputs.grid, request.spec, options);
  if (!wrong) return;
  throw KoloError({.code = ErrorCode::kInternal,
                   .bucket = request.name,
                   .what = fmt::format("verify_schedules: the schedules of {} are wrong: {}",
                                       schedules.front().algorithm, *wrong)});
}

}  // namespace

AlgorithmRequest requested_algorithm(const Options& options, const ProcessGrid& grid) {
  const AlgorithmRequest asked = options.algorithm;
  const std::vector<std::string_view> names = asked.names_for(CollectiveKind::kAllReduce);
  const bool is_open = names.empty() || names.front() == kHierarchical;
  if (!options.reproducible || grid.num_nodes() == 1 || !is_open) return asked;
  const bool has_levels = grid.num_nodes() < grid.world_size();
  return asked.with(CollectiveKind::kAllReduce,
                    has_levels ? "hierarchical:direct,direct" : "direct");
}

CompileOptions compile_options(MemoryKind memory, const PlanInputs& inputs) {
  const Options& options = inputs.options;
  const bool on_device = memory == MemoryKind::kDevice;
  check(!on_device || inputs.device,
        "device memory needs a device: set the option `device`, e.g. KOLO_DEVICE=cuda");
  CompileOptions result{
      .algorithm = inputs.algorithm,
      .network_window = options.network_window,
      .device_chunk_bytes = options.device_chunk_bytes,
      .network_takes_device_memory = on_device && inputs.device->network_takes_memory,
      .native_spans_nodes = on_device && inputs.device->native_spans_nodes,
      .native_in_nodes = on_device && inputs.device->native_in_nodes,
      .link_costs = inputs.costs,
      .tuning = inputs.tuning};
  if (options.chunk_bytes != kAutoBytes) result.chunk_bytes = options.chunk_bytes;
  return result;
}

BucketRequest request_bucket(std::string name, const CollectiveSpec& spec,
                             const BucketLayout& layout, const PlanInputs& inputs) {
  CompileOptions options = compile_options(layout.memory, inputs);
  const CompileContext context{spec, layout, inputs.grid, options};
  Choice choice = choose(context);
  if (inputs.options.chunk_bytes == kAutoBytes) {
    options.chunk_bytes = choice.chunk_bytes(context);
  }
  return {.name = std::move(name),
          .layout = layout,
          .spec = spec,
          .compile =
              [spec, layout, options, algorithm = choice.algorithm, &grid = inputs.grid](int rank) {
                return compile(rank, *algorithm, {spec, layout, grid, options});
              },
          .reason = std::move(choice.reason),
          .chunk_bytes = options.chunk_bytes};
}

BucketPlan plan_bucket(const BucketRequest& request, const PlanInputs& inputs) {
  if (inputs.options.verify_schedules) prove(request, inputs);
  BucketPlan plan;
  plan.schedule = request.compile(inputs.rank);
  plan.reason = request.reason;
  plan.chunk_bytes = request.chunk_bytes;
  Binding& binding = plan.binding;
  binding.name = request.name;
  if (request.layout.op == ReduceOp::kAverage) binding.scale = 1.0 / inputs.grid.world_size();
  binding.unpack_stores = unpack_stores(request, inputs);
  binding.sum_stores = sum_stores(request, inputs);
  binding.exposure_stores = exposure_stores(inputs);
  binding.exposes_small_pages = inputs.costs.reads_small_pages();
  return plan;
}

}  // namespace kolo
