#include "trainer/shards/shard_plan.h"

#include <algorithm>
#include <cmath>

#include "trainer/kernels/kernels.h"
#include "trainer/optimizer/update_gate.h"

namespace kolo::trainer {
namespace {

std::size_t round_up(std::size_t count, std::size_t unit) {
  return (count + unit - 1) / unit * unit;
}

// Bucket size that makes a few microseconds per operation negligible, while models still have
// several buckets, so that one is in flight while the next is filled.
constexpr std::size_t kUsualBucketBytes = std::size_t{1} << 20;
// The same on a device, where an operation takes longer to begin, and bytes less.
constexpr std::size_t kUsualDeviceBucketBytes = std::size_t{32} << 20;

}  // namespace

std::size_t shard_bucket_bytes(const Options& options) {
  const bool is_on_device = options.device != "cpu";
  const std::size_t on_device = options.device_fusion_bytes;
  if (is_on_device && on_device != 0 && on_device != kAutoBytes) return on_device;
  if (options.fusion_bytes != kAutoBytes) return options.fusion_bytes;
  return is_on_device ? kUsualDeviceBucketBytes : kUsualBucketBytes;
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

PlanSummary summarize(const ShardPlan& plan, const ParameterSet& parameters,
                      std::size_t bucket_bytes, DType gradients) {
  PlanSummary summary{.buckets = plan.buckets().size(),
                      .fusion_bytes = bucket_bytes,
                      .algorithm = "reduce_scatter, all_gather"};
  for (const ShardPlan::Bucket& bucket : plan.buckets()) {
    summary.gradients += bucket.segments.size();
    for (const ShardPlan::Segment& segment : bucket.segments) {
      summary.bytes += parameters[segment.parameter].size() * size_of(gradients);
    }
  }
  return summary;
}

void visit_no_compression(StateVisitor& visitor) {
  std::vector<std::vector<std::byte>> compression(1);
  visitor.bytes_of_ranks("compression", compression);
}

ShardSquares squares_of(const ParameterSet& parameters, const ShardPlan& plan, std::size_t rank,
                        bool counts_whole) {
  ShardSquares squares;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (!counts_whole && parameters[i].part().is_whole()) continue;
    if (plan.bucket_of(i)) {
      parameters[i].visit_averages(plan.range(i, rank), [&](std::span<const float> part) {
        squares.of_shard += sum_of_squares(part);
      });
    } else {
      squares.of_rows += sum_of_squares(parameters[i]);
    }
  }
  return squares;
}

std::vector<TensorNorms::Squares> tensor_squares_over_ranks(Runtime& runtime,
                                                            const TensorNorms& norms,
                                                            const ShardPlan& plan,
                                                            std::size_t parameters) {
  using Squares = TensorNorms::Squares;
  static_assert(sizeof(Squares) == 2 * sizeof(double));
  const auto rank = static_cast<std::size_t>(runtime.rank());
  const auto ranks = static_cast<std::size_t>(runtime.world_size());
  std::vector<Squares> all(ranks * parameters);
  for (std::size_t i = 0; i < parameters; ++i) {
    all[rank * parameters + i] = norms.squares_of(i, plan.range(i, rank));
  }
  if (ranks > 1) {
    const BufferView in_place{all.data(), 2 * all.size(), DType::kFloat64};
    runtime.all_gather("squares of tensors", in_place).wait();
  }
  std::vector<Squares> whole(parameters);
  for (std::size_t i = 0; i < all.size(); ++i) whole[i % parameters] += all[i];
  return whole;
}

double norm_over_ranks(Group& group, ShardSquares squares) {
  double& sum = squares.of_shard;
  if (group.size() > 1) {
    group.all_reduce("gradient norm", {&sum, 1, DType::kFloat64}).wait();
  }
  return std::sqrt(sum + squares.of_rows);
}

}  // namespace kolo::trainer
