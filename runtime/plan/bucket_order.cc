#include "runtime/plan/bucket_order.h"

#include <algorithm>
#include <vector>

#include <xxhash.h>

namespace kolo {

bool bits_depend_on_buckets(const AlgorithmRequest& asked, const ProcessGrid& grid) {
  // On one node `CostModel::choose` takes none but algorithms that sum in the order of ranks.
  if (asked.is_auto()) return grid.num_nodes() > 1;
  return asked.is_any_hierarchy() || !asked.algorithm()->sums_in_one_place();
}

bool measures_order(const Options& options, const AlgorithmRequest& asked, const ProcessGrid& grid,
                    std::span<const GradientSpec> gradients, std::size_t buckets) {
  if (grid.world_size() == 1 || buckets < 2 || options.bucket_order == "registered") return false;
  const auto is_on_device = [](const GradientSpec& gradient) {
    return gradient.memory == MemoryKind::kDevice;
  };
  if (std::ranges::any_of(gradients, is_on_device)) return false;
  return options.bucket_order == "measured" || !bits_depend_on_buckets(asked, grid);
}

std::uint32_t urgency_of(const PlannedBucket& bucket, std::size_t gradients) {
  std::size_t first = gradients;
  for (const PlannedSegment& segment : bucket.segments) {
    first = std::min(first, segment.gradient < gradients ? segment.gradient : 0);
  }
  return static_cast<std::uint32_t>(first) + 1;
}

std::uint64_t fingerprint(const Plan& plan) {
  std::vector<std::uint64_t> words;
  for (const PlannedBucket& bucket : plan.buckets) {
    words.push_back(bucket.segments.size());
    for (const PlannedSegment& segment : bucket.segments) words.push_back(segment.gradient);
  }
  return XXH3_64bits(words.data(), words.size() * sizeof(words[0])) | 1;
}

}  // namespace kolo
