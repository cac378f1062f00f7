#include "fusion/bucket_planner.h"

#include <algorithm>
#include <compare>
#include <map>
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

/// Where the gradient would be if it had a bucket to itself.
Placement placement_of(const GradientSpec& gradient, DType bucket_dtype) {
  if (gradient.dtype != bucket_dtype) return Placement::kStaged;
  if (gradient.data == nullptr) return Placement::kInPlace;
  return gradient.memory == MemoryKind::kHost ? Placement::kUser : Placement::kStaged;
}

bool is_in_place(Placement placement) { return placement == Placement::kInPlace; }

/// Properties that all gradients of a bucket share. On the host, 16-bit gradients do not share a
/// bucket with gradients that are cast to their dtype, because a wire follows other rules; see
/// `WirePacker`.
struct Kind {
  DType dtype;
  MemoryKind memory;
  bool is_in_place;
  bool is_cast;

  friend auto operator<=>(const Kind&, const Kind&) = default;
};

Kind kind_of(const GradientSpec& gradient, DType dtype) {
  const Placement placement = placement_of(gradient, dtype);
  const bool casts_are_apart = is_16bit_float(dtype) && gradient.memory == MemoryKind::kHost;
  return {.dtype = dtype,
          .memory = gradient.memory,
          .is_in_place = is_in_place(placement),
          .is_cast = casts_are_apart && placement == Placement::kStaged};
}

/// Sorts buckets by the time at which their last gradient is ready; `order` is that of gradients.
void sort_by_readiness(std::vector<PlannedBucket>& buckets, std::span<const std::size_t> order) {
  std::vector<std::size_t> turn(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) turn[order[i]] = i;
  std::ranges::sort(buckets, {}, [&](const PlannedBucket& bucket) {
    return turn[bucket.segments.back().gradient];
  });
}

}  // namespace

DType bucket_dtype(const GradientSpec& gradient, const GradientOptions& options) {
  const auto wire = gradient.wire_dtype ? gradient.wire_dtype : options.wire_dtype;
  return wire && is_float(gradient.dtype) ? *wire : gradient.dtype;
}

ArenaPlaces place_in_arena(std::span<const GradientSpec> gradients, const PlannerOptions& options) {
  std::map<Kind, std::vector<std::size_t>> by_kind;
  for (std::size_t index : resolve_order(gradients.size(), options.order)) {
    const GradientSpec& gradient = gradients[index];
    const Kind kind = kind_of(gradient, bucket_dtype(gradient, options.gradients));
    if (kind.memory != MemoryKind::kHost || !kind.is_in_place) continue;
    if (gradient.compression.empty()) by_kind[kind].push_back(index);
  }
  ArenaPlaces places;
  places.offset_of.resize(gradients.size());
  for (const auto& [kind, indices] : by_kind) {
    for (const std::size_t index : indices) {
      places.offset_of[index] = places.bytes;
      places.bytes += round_up(gradients[index].count() * size_of(kind.dtype), kWireAlignment);
    }
  }
  return places;
}

Plan plan_buckets(std::span<const GradientSpec> gradients, const PlannerOptions& options) {
  Plan plan;
  plan.bucket_of.resize(gradients.size());
  std::map<Kind, std::size_t> open;  // The bucket that gradients of a kind go into.
  const std::vector<std::size_t> order = resolve_order(gradients.size(), options.order);
  for (std::size_t index : order) {
    const GradientSpec& gradient = gradients[index];
    if (!gradient.compression.empty()) continue;
    const DType dtype = bucket_dtype(gradient, options.gradients);
    const Placement placement = placement_of(gradient, dtype);
    const bool on_device = gradient.memory == MemoryKind::kDevice;
    const std::size_t limit = on_device ? options.device_fusion_bytes : options.fusion_bytes;
    const auto fits = [&](const PlannedBucket& bucket) {
      const std::size_t count =
          align_up(bucket.layout.count, dtype) + gradient.count() + lanes_of(bucket.layout);
      return count * size_of(dtype) <= limit;
    };
    const auto [place, is_first] = open.try_emplace(kind_of(gradient, dtype), plan.buckets.size());
    if (is_first || !fits(plan.buckets[place->second])) {
      place->second = plan.buckets.size();
      plan.buckets.push_back({.layout = {.count = 0,
                                         .dtype = dtype,
                                         .op = options.gradients.op,
                                         .placement = placement,
                                         .memory = gradient.memory},
                              .segments = {}});
    }
    PlannedBucket& bucket = plan.buckets[place->second];
    if (placement == Placement::kStaged) bucket.layout.placement = placement;
    const std::size_t offset = align_up(bucket.layout.count, dtype);
    bucket.segments.push_back({.gradient = index, .offset = offset, .count = gradient.count()});
    bucket.layout.count = offset + gradient.count() + lanes_of(bucket.layout);
  }
  sort_by_readiness(plan.buckets, order);
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    PlannedBucket& bucket = plan.buckets[b];
    for (const PlannedSegment& segment : bucket.segments) plan.bucket_of[segment.gradient] = b;
    if (bucket.layout.memory != MemoryKind::kDevice) continue;
    const std::size_t unit =
        std::max<std::size_t>(1, options.device_padding_bytes / size_of(bucket.layout.dtype));
    bucket.layout.count = round_up(bucket.layout.count, unit);
  }
  return plan;
}

}  // namespace kolo
