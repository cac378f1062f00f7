#include "runtime/plan/bucket_order.h"

#include <algorithm>

namespace kolo {

std::uint32_t urgency_of(const PlannedBucket& bucket, std::size_t gradients) {
  std::size_t first = gradients;
  for (const PlannedSegment& segment : bucket.segments) {
    first = std::min(first, segment.gradient < gradients ? segment.gradient : 0);
  }
  return static_cast<std::uint32_t>(first) + 1;
}

}  // namespace kolo
