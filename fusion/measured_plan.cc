#include "fusion/measured_plan.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace kolo {
namespace {

/// A plan that leaves less to send at the end by a smaller share of `fusion_bytes` is as good as
/// the one in force.
constexpr std::size_t kWorthwhileShare = 8;

std::size_t total_bytes(const Plan& plan) {
  std::size_t bytes = 0;
  for (const PlannedBucket& bucket : plan.buckets) bytes += bucket.layout.bytes();
  return bytes;
}

/// By gradient, the bytes of those that are ready when it is.
std::vector<std::size_t> ready_at(const Plan& plan, std::span<const std::size_t> order) {
  std::vector<std::size_t> bytes(order.size());
  for (const PlannedBucket& bucket : plan.buckets) {
    for (const PlannedSegment& segment : bucket.segments) {
      bytes[segment.gradient] = segment.count * size_of(bucket.layout.dtype);
    }
  }
  std::vector<std::size_t> ready(order.size());
  std::size_t sum = 0;
  for (const std::size_t gradient : order) ready[gradient] = sum += bytes[gradient];
  return ready;
}

/// What a bucket costs beside its bytes; see `better_plan`.
std::size_t overhead_bytes(std::size_t fusion_bytes, std::size_t total) {
  const double share = static_cast<double>(fusion_bytes) / static_cast<double>(total);
  return static_cast<std::size_t>(static_cast<double>(fusion_bytes) * std::min(share, 1.0));
}

}  // namespace

std::size_t exposed_bytes(const Plan& plan, std::span<const std::size_t> order,
                          std::size_t each_bytes) {
  const std::vector<std::size_t> ready = ready_at(plan, order);
  std::vector<std::pair<std::size_t, std::size_t>> starts;  // of buckets, with their bytes
  for (const PlannedBucket& bucket : plan.buckets) {
    std::size_t start = 0;
    for (const PlannedSegment& segment : bucket.segments) {
      start = std::max(start, ready[segment.gradient]);
    }
    starts.emplace_back(start, bucket.layout.bytes() + each_bytes);
  }
  std::ranges::sort(starts);
  std::size_t sent = 0;
  for (const auto& [start, bytes] : starts) sent = std::max(sent, start) + bytes;
  return starts.empty() ? 0 : sent - starts.back().first;
}

std::optional<Plan> better_plan(std::span<const GradientSpec> gradients,
                                const PlannerOptions& options, const Plan& current) {
  const std::size_t total = total_bytes(current);
  if (total == 0) return std::nullopt;
  Plan plan = plan_buckets(gradients, options);
  const std::size_t each = overhead_bytes(options.fusion_bytes, total);
  const std::size_t left = exposed_bytes(plan, options.order, each);
  const std::size_t gain = options.fusion_bytes / kWorthwhileShare;
  if (left + gain >= exposed_bytes(current, options.order, each)) return std::nullopt;
  return plan;
}

}  // namespace kolo
