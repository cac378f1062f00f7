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

/// Returns the placement of the gradient in a bucket of its own.
Placement placement_of(const GradientSpec& gradient, DType bucket_dtype) {
  if (gradient.element_type() != bucket_dtype) return Placement::kStaged;
  if (gradient.data == nullptr) return Placement::kInPlace;
  return gradient.memory == MemoryKind::kHost ? Placement::kUser : Placement::kStaged;
}

bool is_in_place(Placement placement) { return placement == Placement::kInPlace; }

/// Properties that all gradients of a bucket share. On the host, 16-bit gradients do not share a
/// bucket with gradients that are cast to their dtype; see `WirePacker`.
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

using Gradients = std::vector<std::size_t>;

/// Returns the gradients without compression by kind, in the order `order`.
std::map<Kind, Gradients> by_kind(std::span<const GradientSpec> gradients,
                                  const GradientOptions& options,
                                  std::span<const std::size_t> order) {
  std::map<Kind, Gradients> result;
  for (const std::size_t index : order) {
    const GradientSpec& gradient = gradients[index];
    if (!gradient.compression.empty()) continue;
    result[kind_of(gradient, bucket_dtype(gradient, options))].push_back(index);
  }
  return result;
}

/// Returns the layout of an empty bucket of a kind.
BucketLayout empty_layout(const Kind& kind, Placement placement, ReduceOp op) {
  return {.count = 0, .dtype = kind.dtype, .op = op, .placement = placement, .memory = kind.memory};
}

void append(PlannedBucket& bucket, std::size_t index, const GradientSpec& gradient) {
  BucketLayout& layout = bucket.layout;
  const Placement placement = placement_of(gradient, layout.dtype);
  if (placement == Placement::kStaged) layout.placement = placement;
  const std::size_t offset = align_up(layout.count, layout.dtype);
  bucket.segments.push_back({.gradient = index, .offset = offset, .count = gradient.count()});
  layout.count = offset + gradient.count() + report_count(layout);
}

/// Fills buckets with gradients of one kind.
void fill_greedily(std::vector<PlannedBucket>& buckets, std::span<const GradientSpec> gradients,
                   const Kind& kind, const Gradients& members, std::size_t most_bytes,
                   ReduceOp op) {
  const auto fits = [&](const BucketLayout& layout, const GradientSpec& gradient) {
    const std::size_t count =
        align_up(layout.count, kind.dtype) + gradient.count() + report_count(layout);
    return count * size_of(kind.dtype) <= most_bytes;
  };
  for (const std::size_t index : members) {
    const GradientSpec& gradient = gradients[index];
    if (index == members.front() || !fits(buckets.back().layout, gradient)) {
      buckets.push_back(
          {.layout = empty_layout(kind, placement_of(gradient, kind.dtype), op), .segments = {}});
    }
    append(buckets.back(), index, gradient);
  }
}

/// Sorts buckets by the position of their last ready gradient in `order`.
void sort_by_readiness(std::vector<PlannedBucket>& buckets, std::span<const std::size_t> order) {
  std::vector<std::size_t> turn(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) turn[order[i]] = i;
  std::ranges::sort(buckets, {}, [&](const PlannedBucket& bucket) {
    std::size_t last = 0;
    for (const PlannedSegment& segment : bucket.segments) {
      last = std::max(last, turn[segment.gradient]);
    }
    return last;
  });
}

}  // namespace

DType bucket_dtype(const GradientSpec& gradient, const GradientOptions& options) {
  const auto wire = gradient.wire_dtype ? gradient.wire_dtype : options.wire_dtype;
  const DType dtype = gradient.element_type();
  return wire && is_float(dtype) ? *wire : dtype;
}

ArenaPlaces place_in_arena(std::span<const GradientSpec> gradients, const PlannerOptions& options) {
  const Gradients order = resolve_order(gradients.size(), options.order);
  ArenaPlaces places;
  places.offset_of.resize(gradients.size());
  for (const auto& [kind, indices] : by_kind(gradients, options.gradients, order)) {
    if (kind.memory != MemoryKind::kHost || !kind.is_in_place) continue;
    for (const std::size_t index : indices) {
      places.offset_of[index] = places.bytes;
      places.bytes += round_up(gradients[index].count() * size_of(kind.dtype), kWireAlignment);
    }
  }
  return places;
}

Plan plan_buckets(std::span<const GradientSpec> gradients, const PlannerOptions& options) {
  const Gradients order = resolve_order(gradients.size(), options.order);
  const ReduceOp op = options.gradients.op;
  Plan plan;
  for (const auto& [kind, members] : by_kind(gradients, options.gradients, order)) {
    const std::size_t limit =
        kind.memory == MemoryKind::kDevice ? options.device_fusion_bytes : options.fusion_bytes;
    fill_greedily(plan.buckets, gradients, kind, members, limit, op);
  }
  sort_by_readiness(plan.buckets, order);
  plan.bucket_of.resize(gradients.size());
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

Readiness::Readiness(const Plan& plan) : bucket_of_(plan.bucket_of) {
  for (const PlannedBucket& bucket : plan.buckets) size_.push_back(bucket.segments.size());
  missing_ = size_;
}

std::optional<std::size_t> Readiness::mark(std::size_t gradient) {
  const std::size_t bucket = bucket_of_[gradient];
  if (--missing_[bucket] > 0) return std::nullopt;
  missing_[bucket] = size_[bucket];
  return bucket;
}

}  // namespace kolo
