#include "runtime/plan/bucket_plan.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "comm/base/check.h"
#include "comm/goals/device/device_goal.h"

namespace kolo {
namespace {

CompileOptions options_for(const BucketLayout& layout, const PlanInputs& inputs,
                           const AlgorithmRequest& algorithm) {
  const Options& options = inputs.options;
  const bool on_device = layout.is_on_device();
  check(!on_device || inputs.device,
        "device memory needs a device: set the option `device`, e.g. KOLO_DEVICE=cuda");
  CompileOptions result{
      .algorithm = algorithm,
      .network_window = options.network_window,
      .device_chunk_bytes = options.device_chunk_bytes,
      .network_takes_device_memory = on_device && inputs.device->network_takes_memory,
      .native_spans_nodes = on_device && inputs.device->native_spans_nodes,
      .link_costs = inputs.costs};
  // With the chunks of the algorithm.
  result.chunk_bytes = options.chunk_bytes != kAutoBytes
                           ? options.chunk_bytes
                           : cheapest_chunk_bytes(layout, inputs.grid, result);
  return result;
}

/// Bytes of the tensors from which ranks of this node contribute, and into which they receive.
std::size_t tensor_bytes(const BucketRequest& request, const PlanInputs& inputs) {
  const ProcessGrid& grid = inputs.grid;
  const BucketLayout& layout = request.layout;
  const auto is_near = [&](int rank) { return grid.same_node(rank, inputs.rank); };
  std::size_t elements = 0;
  for (const Goal::Part& part : request.goal.parts) {
    auto tensors = std::ranges::count_if(part.contributors, is_near);
    tensors += std::ranges::count_if(part.receivers, [&](int rank) {
      return is_near(rank) && (layout.out_of_place || !part.contributes(rank));
    });
    const std::size_t end = std::min(part.extent.end(), layout.count);
    if (end > part.extent.offset) {
      elements += (end - part.extent.offset) * static_cast<std::size_t>(tensors);
    }
  }
  return elements * size_of(layout.dtype);
}

/// How the results of a host bucket are written to tensors that live elsewhere: past the cache if
/// the tensors of all ranks of the node are far larger. Up to 1.5 times its size most collectives
/// are faster through the cache, beyond 2 times few are.
Stores unpack_stores(const BucketRequest& request, const PlanInputs& inputs) {
  const std::size_t cache = inputs.cache_bytes;
  const bool is_far_larger = cache > 0 && 2 * tensor_bytes(request, inputs) > 3 * cache;
  return is_far_larger ? Stores::kStreaming : Stores::kCached;
}

/// The same for sums, which gain earlier: vectors that go through the cache read the lines that
/// they replace.
Stores sum_stores(const BucketRequest& request, const PlanInputs& inputs) {
  const std::size_t cache = inputs.cache_bytes;
  const bool is_larger = cache > 0 && tensor_bytes(request, inputs) > cache;
  return is_larger ? Stores::kStreaming : Stores::kCached;
}

/// How contributions are written to slots, for another rank to sum.
Stores lend_stores(const PlanInputs& inputs) {
  return inputs.costs.memory.packs_past_cache() ? Stores::kStreaming : Stores::kCached;
}

void prove(const BucketRequest& request, const PlanInputs& inputs) {
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < inputs.grid.world_size(); ++rank) {
    schedules.push_back(request.compile(rank));
  }
  const VerifyOptions options{.network_takes_device_memory =
                                  inputs.device && inputs.device->network_takes_memory};
  const auto wrong = verify(schedules, inputs.grid, request.goal, options);
  if (!wrong) return;
  throw KoloError({.code = ErrorCode::kInternal,
                   .bucket = request.name,
                   .what = fmt::format("verify_schedules: the schedules of {} are wrong: {}",
                                       schedules.front().algorithm, *wrong)});
}

}  // namespace

AlgorithmRequest requested_algorithm(const Options& options, const ProcessGrid& grid) {
  const AlgorithmRequest asked = options.algorithm;
  if (!options.reproducible || grid.num_nodes() == 1 || asked.algorithm()) return asked;
  return grid.num_nodes() == grid.world_size() ? "direct" : "hierarchical:direct,direct";
}

BucketRequest all_reduce_request(std::string name, const BucketLayout& layout,
                                 const PlanInputs& inputs) {
  const CompileOptions options = options_for(
      layout, inputs, layout.is_on_device() ? inputs.device_algorithm : inputs.algorithm);
  return {.name = std::move(name),
          .layout = layout,
          .goal = Goal::all_reduce(inputs.grid.world_size()),
          .compile = [layout, options, &grid = inputs.grid](
                         int rank) { return compile_all_reduce(rank, layout, grid, options); },
          .reason = layout.is_on_device() ? explain_device_algorithm(layout, inputs.grid, options)
                                          : std::string()};
}

BucketRequest goal_request(std::string name, const Goal& goal, const BucketLayout& layout,
                           const PlanInputs& inputs) {
  // The options that name an algorithm name one for all-reduces; chunks are those of the cheapest.
  const CompileOptions options = options_for(layout, inputs, {});
  return {.name = std::move(name),
          .layout = layout,
          .goal = goal,
          .compile = [goal, layout, options, algorithm = inputs.collective_algorithm,
                      &grid = inputs.grid](int rank) {
            return compile_goal(rank, goal, layout, grid, options, algorithm);
          }};
}

bool prefers_device(const Goal& goal, const BucketLayout& layout, const PlanInputs& inputs) {
  const CompileOptions options = options_for(layout, inputs, {});
  return choose_device_goal(goal, layout, {inputs.grid, options}, inputs.collective_algorithm) !=
         nullptr;
}

bool prefers_bucket(const BucketLayout& bucket, const PlanInputs& inputs) {
  if (inputs.grid.num_nodes() == 1 || !inputs.device || !inputs.device->native_in_nodes) {
    return false;
  }
  const CompileOptions options = options_for(bucket, inputs, inputs.device_algorithm);
  if (resolve_algorithm(bucket, inputs.grid, options).needs_native()) return false;
  if (!inputs.device_algorithm.is_auto()) return true;
  if (inputs.collective_algorithm.algorithm() != nullptr) return false;
  BucketLayout host = bucket;
  host.memory = MemoryKind::kHost;
  host.placement = Placement::kUser;
  const Goal goal = Goal::all_reduce(inputs.grid.world_size(), bucket.count);
  return predict_device_us(bucket, inputs.grid, options) <
         predict_mirror_us(goal, host, {inputs.grid, options}, {});
}

BucketPlan plan_bucket(const BucketRequest& request, const PlanInputs& inputs) {
  if (inputs.options.verify_schedules) prove(request, inputs);
  const bool is_average = request.layout.op == ReduceOp::kAverage;
  return {.schedule = request.compile(inputs.rank),
          .binding = {.name = request.name,
                      .scale = is_average ? 1.0 / inputs.grid.world_size() : 1.0,
                      .unpack_stores = unpack_stores(request, inputs),
                      .sum_stores = sum_stores(request, inputs),
                      .lend_stores = lend_stores(inputs),
                      .lends_small_pages = inputs.costs.reads_small_pages()},
          .reason = request.reason};
}

}  // namespace kolo
