#include "runtime/gradients/compression_plan.h"

#include <map>
#include <utility>

#include <fmt/format.h>

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

}  // namespace kolo
