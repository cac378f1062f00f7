#include "fusion/readiness.h"

namespace kolo {

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
