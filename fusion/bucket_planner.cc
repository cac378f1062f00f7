#include "fusion/bucket_planner.h"

#include <algorithm>
#include <numeric>

#include "comm/base/check.h"

namespace kolo {
namespace {

std::vector<std::size_t> resolve_order(std::size_t count, const std::vector<std::size_t>& order) {
  std::vector<std::size_t> result(count);
  std::iota(result.begin(), result.end(), std::size_t{0});
  if (order.empty()) {
    std::reverse(result.begin(), result.end());
    return result;
  }
  check(std::is_permutation(order.begin(), order.end(), result.begin(), result.end()),
        "the order of gradients must name each once");
  return order;
}

std::size_t align_up(std::size_t count, DType dtype) {
  const std::size_t unit = kWireAlignment / size_of(dtype);
  return (count + unit - 1) / unit * unit;
}

}  // namespace

DType bucket_dtype(const GradientSpec& gradient, const GradientOptions& options) {
  return options.wire_dtype && is_float(gradient.dtype) ? *options.wire_dtype : gradient.dtype;
}

Plan plan_buckets(std::span<const GradientSpec> gradients, const PlannerOptions& options) {
  Plan plan;
  plan.bucket_of.resize(gradients.size());
  for (std::size_t index : resolve_order(gradients.size(), options.order)) {
    const GradientSpec& gradient = gradients[index];
    const DType dtype = bucket_dtype(gradient, options.gradients);
    const Placement placement = gradient.data == nullptr && dtype == gradient.dtype
                                    ? Placement::kInPlace
                                    : Placement::kStaged;

    const auto fits = [&](const PlannedBucket& bucket) {
      const std::size_t count = align_up(bucket.layout.count, dtype) + gradient.count();
      return bucket.layout.dtype == dtype && bucket.layout.placement == placement &&
             count * size_of(dtype) <= options.fusion_bytes;
    };
    if (plan.buckets.empty() || !fits(plan.buckets.back())) {
      plan.buckets.push_back({.layout = {.count = 0,
                                         .dtype = dtype,
                                         .op = options.gradients.op,
                                         .placement = placement},
                              .segments = {}});
    }
    PlannedBucket& bucket = plan.buckets.back();
    const std::size_t offset = align_up(bucket.layout.count, dtype);
    bucket.segments.push_back({.gradient = index, .offset = offset, .count = gradient.count()});
    bucket.layout.count = offset + gradient.count();
    plan.bucket_of[index] = plan.buckets.size() - 1;
  }
  return plan;
}

}  // namespace kolo
