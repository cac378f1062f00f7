#include "fusion/bucket_planner.h"

#include <algorithm>
#include <numeric>

#include "comm/base/check.h"
#include "fusion/wire_packer.h"

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

std::size_t round_up(std::size_t count, std::size_t unit) {
  return (count + unit - 1) / unit * unit;
}

std::size_t align_up(std::size_t count, DType dtype) {
  return round_up(count, kWireAlignment / size_of(dtype));
}

/// Where the gradient would be if its bucket were its own.
Placement placement_of(const GradientSpec& gradient, DType bucket_dtype) {
  if (gradient.dtype != bucket_dtype) return Placement::kStaged;
  if (gradient.data == nullptr) return Placement::kInPlace;
  return gradient.memory == MemoryKind::kHost ? Placement::kUser : Placement::kStaged;
}

bool is_in_place(Placement placement) { return placement == Placement::kInPlace; }

/// Whether gradients of two placements may share a bucket. On the host, 16-bit gradients keep from
/// those that are cast to their dtype: a wire follows other rules, see `WirePacker`.
bool are_alike(Placement a, Placement b, DType dtype, MemoryKind memory) {
  if (is_16bit_float(dtype) && memory == MemoryKind::kHost) return a == b;
  return is_in_place(a) == is_in_place(b);
}

}  // namespace

DType bucket_dtype(const GradientSpec& gradient, const GradientOptions& options) {
  const auto wire = gradient.wire_dtype ? gradient.wire_dtype : options.wire_dtype;
  return wire && is_float(gradient.dtype) ? *wire : gradient.dtype;
}

ArenaPlaces place_in_arena(std::span<const GradientSpec> gradients, const PlannerOptions& options) {
  ArenaPlaces places;
  places.offset_of.resize(gradients.size());
  for (std::size_t index : resolve_order(gradients.size(), options.order)) {
    const GradientSpec& gradient = gradients[index];
    const DType dtype = bucket_dtype(gradient, options.gradients);
    if (gradient.memory != MemoryKind::kHost || !gradient.compression.empty()) continue;
    if (!is_in_place(placement_of(gradient, dtype))) continue;
    places.offset_of[index] = places.bytes;
    places.bytes += round_up(gradient.count() * size_of(dtype), kWireAlignment);
  }
  return places;
}

Plan plan_buckets(std::span<const GradientSpec> gradients, const PlannerOptions& options) {
  Plan plan;
  plan.bucket_of.resize(gradients.size());
  for (std::size_t index : resolve_order(gradients.size(), options.order)) {
    const GradientSpec& gradient = gradients[index];
    if (!gradient.compression.empty()) continue;
    const DType dtype = bucket_dtype(gradient, options.gradients);
    const Placement placement = placement_of(gradient, dtype);
    const bool on_device = gradient.memory == MemoryKind::kDevice;
    const std::size_t limit = on_device ? options.device_fusion_bytes : options.fusion_bytes;
    const auto fits = [&](const PlannedBucket& bucket) {
      const std::size_t count =
          align_up(bucket.layout.count, dtype) + gradient.count() + lanes_of(bucket.layout);
      return bucket.layout.dtype == dtype && bucket.layout.memory == gradient.memory &&
             are_alike(bucket.layout.placement, placement, dtype, gradient.memory) &&
             count * size_of(dtype) <= limit;
    };
    if (plan.buckets.empty() || !fits(plan.buckets.back())) {
      plan.buckets.push_back({.layout = {.count = 0,
                                         .dtype = dtype,
                                         .op = options.gradients.op,
                                         .placement = placement,
                                         .memory = gradient.memory},
                              .segments = {}});
    }
    PlannedBucket& bucket = plan.buckets.back();
    if (placement == Placement::kStaged) bucket.layout.placement = placement;
    const std::size_t offset = align_up(bucket.layout.count, dtype);
    bucket.segments.push_back({.gradient = index, .offset = offset, .count = gradient.count()});
    bucket.layout.count = offset + gradient.count() + lanes_of(bucket.layout);
    plan.bucket_of[index] = plan.buckets.size() - 1;
  }
  for (PlannedBucket& bucket : plan.buckets) {
    if (bucket.layout.memory != MemoryKind::kDevice) continue;
    const std::size_t unit =
        std::max<std::size_t>(1, options.device_padding_bytes / size_of(bucket.layout.dtype));
    bucket.layout.count = round_up(bucket.layout.count, unit);
  }
  return plan;
}

}  // namespace kolo
