#include "runtime/plan/compression_plan.h"

#include <map>
#include <utility>

#include <fmt/format.h>

#include "fusion/segment_packer.h"

namespace kolo {
std::string PlannedGroup::name(std::span<const GradientSpec> all) const {
  std::string text = fmt::format("'{}'", all[gradients.front()].name);
  if (gradients.size() > 1) text += fmt::format(" and {} more", gradients.size() - 1);
  return text;
}

std::vector<PlannedGroup> plan_groups(std::span<const GradientSpec> gradients) {
  // Backward computes the last registered first.
  std::map<std::string, std::vector<std::size_t>> by_spec;
  for (std::size_t i = gradients.size(); i-- > 0;) {
    if (!gradients[i].compression.empty()) by_spec[gradients[i].compression].push_back(i);
  }
  std::vector<PlannedGroup> groups;
  for (const auto& [text, indices] : by_spec) {
    std::vector<std::size_t> counts;
    for (const std::size_t i : indices) counts.push_back(gradients[i].count());
    for (const std::vector<std::size_t>& part : compression_groups(counts)) {
      PlannedGroup& group = groups.emplace_back();
      group.spec = CompressionSpec::parse(text);
      for (const std::size_t place : part) {
        group.gradients.push_back(indices[place]);
        group.count += counts[place];
      }
    }
  }
  return groups;
}

SparseOptions sparse_options(const PlannedGroup& group, std::span<const GradientSpec> gradients) {
  const CompressionSpec& spec = group.spec;
  SparseOptions options{.density = spec.density,
                        .warm_up = spec.warm_up(),
                        .route = spec.route.value_or(ExchangeRoute::kPairwise),
                        .rule = spec.rule,
                        .scope = spec.scope,
                        .wire = spec.wire,
                        .feedback = spec.feedback};
  if (spec.method == CompressionMethod::kBlockTopK) {
    options.block = spec.block;
    options.result_wire = spec.wire;
  }
  if (spec.momentum > 0) options.momentum = MomentumCorrection{.momentum = spec.momentum};
  for (const std::size_t i : group.gradients) {
    options.tensors.push_back({.name = gradients[i].name, .count = gradients[i].count()});
  }
  return options;
}

PlannedBucket planned_bucket(const PlannedGroup& group, std::span<const GradientSpec> gradients,
                             ReduceOp op) {
  const SparseOptions options = sparse_options(group, gradients);
  const std::vector<std::size_t> offsets = tensor_offsets(options);
  PlannedBucket bucket{.layout = sparse_bucket(options, op, Placement::kUser), .segments = {}};
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    bucket.segments.push_back(
        {.gradient = group.gradients[i], .offset = offsets[i], .count = options.tensors[i].count});
  }
  return bucket;
}

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
                          .codec = CompressedGroup::make(rank, context.grid, options)};
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
