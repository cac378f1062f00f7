#include "runtime/gradients/compressed_bucket.h"

#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "compression/top_k_group.h"
#include "fusion/segment_packer.h"

namespace kolo {

CompressedBucket add_compressed(const PlannedGroup& group, std::span<const GradientSpec> gradients,
                                std::span<const BufferView> views, ReduceOp op, BucketOwner& owner,
                                std::size_t index, const PlanContext& context) {
  const int rank = context.transport.rank();
  const SparseOptions options = sparse_options(group, gradients);
  const PlannedBucket planned = planned_bucket(group, gradients, op);
  std::vector<Segment> segments;
  for (const PlannedSegment& segment : planned.segments) {
    segments.push_back({.data = views[segment.gradient].data,
                        .dtype = DType::kFloat32,
                        .count = segment.count,
                        .offset = segment.offset});
  }
  CompressedBucket result{.group = group,
                          .name = group.name(gradients),
                          .planned = planned,
                          .codec = std::make_shared<TopKGroup>(rank, context.grid, options)};
  const PlanInputs inputs = context.inputs();
  const auto add = [&](auto compile, std::string_view kind) {
    const std::string text = fmt::format("{} step of {}", kind, result.name);
    BucketPlan plan = plan_bucket(
        {.name = text,
         .layout = planned.layout,
         .goal = Goal::all_reduce(context.grid.world_size()),
         .compile = [&](int each) { return compile(each, planned.layout, context.grid, options); }},
        inputs);
    plan.binding.packer = std::make_shared<SegmentPacker>(DType::kFloat32, segments);
    plan.binding.codec = result.codec;
    return context.buckets.add(std::move(plan), owner, index, text);
  };
  result.sparse = add(compile_sparse, "sparse");
  result.dense = add(compile_dense_step, "dense");
  return result;
}

}  // namespace kolo
