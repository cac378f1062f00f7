#include "trainer/shards/shard_plan.h"

#include <algorithm>

namespace kolo::trainer {
namespace {

std::size_t round_up(std::size_t count, std::size_t unit) {
  return (count + unit - 1) / unit * unit;
}

// Long enough that a few microseconds for each operation do not count beside the bytes, and short
// enough that models have several buckets, of which one travels while the next is filled.
constexpr std::size_t kUsualBucketBytes = std::size_t{1} << 20;

}  // namespace

std::size_t shard_bucket_bytes(const Options& options) {
  return options.fusion_bytes == kAutoBytes ? kUsualBucketBytes : options.fusion_bytes;
}

ShardPlan::ShardPlan(const ParameterSet& parameters, std::size_t ranks, std::size_t bucket_bytes)
    : ranks_(ranks), places_(parameters.size()) {
  for (std::size_t i = parameters.size(); i-- > 0;) {
    const Parameter& parameter = parameters[i];
    if (parameter.rows() != nullptr) continue;
    const std::size_t padded = round_up(parameter.size(), kAlignment);
    const bool fits =
        !buckets_.empty() && (buckets_.back().count + padded) * sizeof(float) <= bucket_bytes;
    if (!fits) buckets_.emplace_back();
    Bucket& bucket = buckets_.back();
    bucket.segments.push_back({.parameter = i, .offset = bucket.count});
    places_[i] = {.bucket = buckets_.size() - 1, .offset = bucket.count, .size = parameter.size()};
    bucket.count += padded;
  }
  for (Bucket& bucket : buckets_) bucket.count = round_up(bucket.count, kAlignment * ranks);
}

ElementRange ShardPlan::range(std::size_t parameter, std::size_t rank) const {
  const Place& place = places_[parameter];
  const std::size_t part = part_count(buckets_[place.bucket.value()]);
  const auto inside = [&](std::size_t in_bucket) {
    return std::clamp(in_bucket, place.offset, place.offset + place.size) - place.offset;
  };
  const std::size_t begin = inside(rank * part);
  return {.begin = begin, .count = inside((rank + 1) * part) - begin};
}

std::vector<ElementRange> ShardPlan::ranges(std::size_t parameter) const {
  std::vector<ElementRange> all;
  for (std::size_t rank = 0; rank < ranks_; ++rank) all.push_back(range(parameter, rank));
  return all;
}

}  // namespace kolo::trainer
