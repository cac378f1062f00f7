#include "runtime/compressed_set.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "comm/base/check.h"
#include "comm/base/half.h"
#include "compression/feedback_state.h"

namespace kolo {
namespace {

/// Of a floating-point number of `Bits`, what is all ones in infinities and NaN.
template <typename Bits>
bool all_below(const BufferView& tensor, Bits exponent) {
  const std::span bits(static_cast<const Bits*>(tensor.data), tensor.count);
  return std::ranges::none_of(bits, [&](Bits value) { return (value & exponent) == exponent; });
}

bool holds_finite(const BufferView& tensor) {
  if (tensor.memory == MemoryKind::kDevice) return true;
  switch (tensor.dtype) {
    case DType::kFloat64:
      return all_below(tensor, std::uint64_t{0x7ff} << 52);
    case DType::kFloat32:
      return all_below(tensor, std::uint32_t{0xff} << 23);
    case DType::kFloat16:
      return all_below(tensor, std::uint16_t{0x7c00});
    case DType::kBFloat16:
      return all_below(tensor, std::uint16_t{0x7f80});
    default:
      return true;
  }
}

double norm(const BufferView& tensor) {
  double squares = 0;
  for (const float value : std::span(static_cast<const float*>(tensor.data), tensor.count)) {
    squares += double{value} * double{value};
  }
  return std::sqrt(squares);
}

}  // namespace

bool all_finite(std::span<const BufferView> tensors) {
  return std::ranges::all_of(tensors, holds_finite);
}

void CompressedSet::plan(std::span<const GradientSpec> gradients, std::span<const BufferView> views,
                         ReduceOp op, BucketOwner& owner, const PlanContext& context) {
  Plan plan;
  plan.bucket_of.resize(gradients.size());
  has_.resize(gradients.size());
  for (const PlannedGroup& group : plan_groups(gradients)) {
    for (const std::size_t gradient : group.gradients) {
      has_[gradient] = true;
      plan.bucket_of[gradient] = plan.buckets.size();
    }
    plan.buckets.push_back(planned_bucket(group, gradients, op));
    buckets_.push_back(
        add_compressed(group, gradients, views, op, owner, kFirst + buckets_.size(), context));
  }
  readiness_.emplace(plan);
  for (std::size_t i = 0; i < views.size(); ++i) {
    if (!has_[i]) others_.push_back(views[i]);
  }
}

std::vector<BucketId> CompressedSet::ids() const {
  std::vector<BucketId> ids;
  for (const CompressedBucket& bucket : buckets_) {
    ids.push_back(bucket.sparse);
    ids.push_back(bucket.dense);
  }
  return ids;
}

std::string CompressedSet::describe() const {
  std::string text;
  for (const CompressedBucket& bucket : buckets_) {
    text +=
        fmt::format("{} {} {}\n", bucket.name, bucket.group.count, bucket.group.spec.to_string());
  }
  return text;
}

std::optional<std::size_t> CompressedSet::mark(std::size_t gradient) {
  const auto bucket = readiness_->mark(gradient);
  return bucket ? std::optional(kFirst + *bucket) : std::nullopt;
}

void CompressedSet::end_step() {
  if (buckets_.empty()) return;
  const bool accepted =
      std::ranges::all_of(buckets_, [](const auto& bucket) { return bucket.codec->finite(); }) &&
      all_finite(others_);
  for (const CompressedBucket& bucket : buckets_) {
    if (accepted) {
      bucket.codec->commit();
    } else {
      bucket.codec->abort();
    }
  }
}

void CompressedSet::flush_next() {
  for (const CompressedBucket& bucket : buckets_) bucket.codec->flush_next();
}

std::optional<double> CompressedSet::residual_norm(std::string_view tensor) const {
  for (const CompressedBucket& bucket : buckets_) {
    const auto& tensors = bucket.codec->options().tensors;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].name == tensor) return bucket.codec->residual_norm(i);
    }
  }
  return std::nullopt;
}

std::vector<CompressionStats> CompressedSet::stats(std::span<const BufferView> views) const {
  std::vector<CompressionStats> result;
  for (const CompressedBucket& bucket : buckets_) {
    const CompressedGroupStats& stats = bucket.codec->stats();
    double residual = 0;
    double gradient = 0;
    for (std::size_t i = 0; i < bucket.group.gradients.size(); ++i) {
      residual = std::hypot(residual, bucket.codec->residual_norm(i));
      gradient = std::hypot(gradient, norm(views[bucket.group.gradients[i]]));
    }
    const auto elements = static_cast<double>(bucket.group.count);
    result.push_back({.tensors = bucket.name,
                      .path = bucket.group.spec.to_string(),
                      .elements = bucket.group.count,
                      .steps = stats.steps,
                      .skipped_steps = stats.skipped,
                      .k = stats.k,
                      .kept_pairs = stats.kept_pairs,
                      .density = stats.k > 0 ? static_cast<double>(stats.kept_pairs) / elements : 1,
                      .payload_bytes = stats.payload_bytes,
                      .residual_norm = residual,
                      .gradient_norm = gradient});
  }
  return result;
}

bool CompressedSet::corrects_momentum(std::size_t gradient) const {
  return std::ranges::any_of(buckets_, [&](const CompressedBucket& bucket) {
    return bucket.group.spec.momentum > 0 &&
           std::ranges::count(bucket.group.gradients, gradient) > 0;
  });
}

// --- State --------------------------------------------------------------------------------------

std::vector<std::byte> CompressedSet::save() const {
  FeedbackState all;
  std::uint64_t step = 0;
  for (const CompressedBucket& bucket : buckets_) {
    step = bucket.codec->step();
    FeedbackState state = bucket.codec->save();
    std::ranges::move(state.tensors, std::back_inserter(all.tensors));
  }
  std::vector<std::byte> bytes(sizeof(step));
  std::memcpy(bytes.data(), &step, sizeof(step));
  const std::vector<std::byte> state = to_bytes(all);
  bytes.insert(bytes.end(), state.begin(), state.end());
  return bytes;
}

void CompressedSet::load(std::span<const std::byte> bytes) {
  std::uint64_t step = 0;
  if (bytes.size() < sizeof(step)) {
    throw KoloError({.code = ErrorCode::kData, .what = "state of compression: truncated"});
  }
  std::memcpy(&step, bytes.data(), sizeof(step));
  FeedbackState all = feedback_state_from(bytes.subspan(sizeof(step)));
  // Each group takes its own; all is read before anything changes.
  std::vector<FeedbackState> parts;
  std::size_t taken = 0;
  for (const CompressedBucket& bucket : buckets_) {
    FeedbackState& part = parts.emplace_back();
    const std::size_t count = bucket.codec->save().tensors.size();
    for (std::size_t i = 0; i < count && taken < all.tensors.size(); ++i) {
      part.tensors.push_back(std::move(all.tensors[taken++]));
    }
  }
  if (taken != all.tensors.size()) {
    throw KoloError({.code = ErrorCode::kData,
                     .what = "state of compression: has tensors that are not in this set"});
  }
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    buckets_[i].codec->load(parts[i]);
    buckets_[i].codec->set_step(static_cast<std::size_t>(step));
  }
}

}  // namespace kolo
