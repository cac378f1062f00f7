#include "runtime/gradients/compressed_set.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "comm/base/error.h"
#include "compression/error_feedback.h"
#include "compression/gradient_codec.h"
#include "fusion/pack_kernels.h"
#include "runtime/gradients/compression_choice.h"

namespace kolo {
namespace {

/// Inputs that all compressed buckets of a set share.
struct SetParts {
  std::span<const GradientSpec> gradients;
  std::span<const BufferView> views;
  std::span<const Event* const> ready;
  ReduceOp op;
  std::shared_ptr<FeedbackStream> on_device;  // null without gradients in device memory
};

/// Compiles both schedules and adds them as bucket `index` of `owner`.
CompressedBucket add_compressed(const CompressedTensors& tensors, const SetParts& set,
                                BucketOwner& owner, std::size_t index, const PlanContext& context) {
  const int rank = context.transport.rank();
  const bool on_device = tensors.memory == MemoryKind::kDevice;
  SparseOptions options = sparse_options(tensors);
  if (on_device) options.device = set.on_device;
  const PlannedBucket planned = planned_bucket(tensors, set.op);
  std::vector<Segment> segments;
  std::vector<const Event*> inputs;
  for (const PlannedSegment& segment : planned.segments) {
    segments.push_back({.data = set.views[segment.gradient].data,
                        .dtype = DType::kFloat32,
                        .count = segment.count,
                        .offset = segment.offset});
    if (on_device) inputs.push_back(set.ready[segment.gradient]);
  }
  CompressedBucket result{.tensors = tensors,
                          .name = tensors.name(set.gradients),
                          .planned = planned,
                          .codec = options.method->make_codec(rank, context.grid, options)};
  const PlanInputs plan_inputs = context.inputs();
  const CompileOptions device =
      on_device ? compile_options(MemoryKind::kDevice, plan_inputs) : CompileOptions{};
  const auto add = [&](auto compile, std::string_view kind) {
    const std::string text = fmt::format("{} step of {}", kind, result.name);
    BucketPlan plan =
        plan_bucket({.name = text,
                     .layout = planned.layout,
                     .spec = CollectiveSpec::all_reduce(context.grid.world_size()),
                     .compile =
                         [&](int each) {
                           return compile(each, planned.layout, context.grid, options, device);
                         }},
                    plan_inputs);
    if (on_device) {
      plan.binding.stream_packer = make_device_packer(context, plan.schedule, segments);
      plan.binding.inputs = inputs;
    } else {
      plan.binding.packer = std::make_shared<SegmentPacker>(DType::kFloat32, segments);
    }
    plan.binding.codec = result.codec;
    return context.buckets.add(std::move(plan), owner, index, text);
  };
  result.sparse = add(compile_sparse, "sparse");
  result.dense = add(compile_dense_step, "dense");
  return result;
}

bool has_feedback(const FeedbackState::Tensor& tensor) {
  const auto has_any = [](const std::vector<float>& values) {
    return std::ranges::any_of(values, [](float value) { return value != 0; });
  };
  return has_any(tensor.residual) || has_any(tensor.velocity) || has_any(tensor.of_sums);
}

bool is_checked_on_device(const BufferView& tensor) {
  return tensor.memory == MemoryKind::kDevice && is_float(tensor.dtype);
}

}  // namespace

CompressedSet::DeviceCheck::DeviceCheck(std::shared_ptr<FeedbackStream> its_stream)
    : on(std::move(its_stream)), flag(on->device), ended(on->device.make_event()) {}

void CompressedSet::plan(std::span<const GradientSpec> gradients, std::span<const BufferView> views,
                         std::span<const Event* const> ready, ReduceOp op, BucketOwner& owner,
                         const PlanContext& context, std::size_t step) {
  has_.resize(gradients.size());
  const bool has_any = std::ranges::any_of(
      gradients, [](const GradientSpec& each) { return !each.compression.empty(); });
  const bool on_device = std::ranges::any_of(
      gradients, [](const GradientSpec& each) { return each.memory == MemoryKind::kDevice; });
  if (has_any && on_device && device_check_ == nullptr) {
    device_check_ =
        std::make_unique<DeviceCheck>(std::make_shared<FeedbackStream>(context.streams->device()));
  }
  const SetParts set{.gradients = gradients,
                     .views = views,
                     .ready = ready,
                     .op = op,
                     .on_device = device_check_ ? device_check_->on : nullptr};
  std::vector<GradientSpec> others(gradients.begin(), gradients.end());
  for (std::size_t i = 0; i < others.size(); ++i) {
    if (has_[i]) others[i].compression.clear();
  }
  for (const CompressedTensors& tensors : plan_compressed(others)) {
    for (const std::size_t gradient : tensors.gradients) has_[gradient] = true;
    buckets_.push_back(add_compressed(tensors, set, owner, kFirst + buckets_.size(), context));
    buckets_.back().predicted_us = predict_sparse_us(tensors, context.grid, context.costs);
    buckets_.back().codec->set_step(step);
  }
  views_.assign(views.begin(), views.end());
}

void CompressedSet::placed(std::span<const BufferView> views) {
  views_.assign(views.begin(), views.end());
  find_others();
}

void CompressedSet::find_others() {
  others_.clear();
  for (std::size_t i = 0; i < views_.size(); ++i) {
    if (!has_[i]) others_.push_back(views_[i]);
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
    text += fmt::format("{} {} {}\n", bucket.name, bucket.tensors.count,
                        bucket.tensors.spec.to_string());
  }
  return text;
}

void CompressedSet::append_to(Plan& plan) const {
  for (const CompressedBucket& bucket : buckets_) {
    for (const std::size_t gradient : bucket.tensors.gradients) {
      plan.bucket_of[gradient] = plan.buckets.size();
    }
    plan.buckets.push_back(bucket.planned);
  }
}

bool CompressedSet::is_finite() {
  if (!advance_check()) device_check_->on->device.finish(*device_check_->ended);
  return buckets_.empty() ||
         (std::ranges::all_of(buckets_,
                              [](const auto& bucket) { return bucket.codec->finite(); }) &&
          std::ranges::all_of(others_, all_finite) &&
          !(checks_device() && device_check_->flag.is_raised()));
}

bool CompressedSet::checks_device() const {
  return device_check_ && std::ranges::any_of(others_, is_checked_on_device);
}

bool CompressedSet::advance_check() {
  if (!checks_device()) return true;
  auto& [on, flag, ended, has_begun] = *device_check_;
  if (has_begun) return ended->done();
  has_begun = true;
  std::uint32_t* const raised = flag.begin(*on->stream);
  for (const BufferView& tensor : others_) {
    if (!is_checked_on_device(tensor)) continue;
    on->device.kernels().find_non_finite(*on->stream, tensor.dtype, tensor.data, tensor.count,
                                         raised);
  }
  flag.end(*on->stream);
  on->stream->record(*ended);
  return false;
}

void CompressedSet::end_step(bool accepted) {
  if (device_check_) device_check_->has_begun = false;
  bool is_new = false;
  for (const CompressedBucket& bucket : buckets_) {
    if (!bucket.codec->has_run()) {
      is_new = true;
    } else if (accepted) {
      bucket.codec->commit();
    } else {
      bucket.codec->abort();
    }
  }
  if (is_new) find_others();
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

std::vector<CompressionStats> CompressedSet::stats(Norms norms) const {
  std::vector<CompressionStats> result;
  for (const CompressedBucket& bucket : buckets_) {
    const GradientCodecStats& stats = bucket.codec->stats();
    const bool has_norms = norms == Norms::kAll || bucket.tensors.memory != MemoryKind::kDevice;
    double residual = has_norms ? 0 : std::numeric_limits<double>::quiet_NaN();
    double gradient = residual;
    for (std::size_t i = 0; has_norms && i < bucket.tensors.gradients.size(); ++i) {
      residual = std::hypot(residual, bucket.codec->residual_norm(i));
      const BufferView& view = views_[bucket.tensors.gradients[i]];
      gradient = std::hypot(gradient,
                            bucket.codec->norm({static_cast<const float*>(view.data), view.count}));
    }
    const auto elements = static_cast<double>(bucket.tensors.count);
    result.push_back({.tensors = bucket.name,
                      .path = bucket.tensors.spec.to_string(),
                      .elements = bucket.tensors.count,
                      .steps = stats.steps,
                      .skipped_steps = stats.skipped,
                      .k = stats.k,
                      .kept_pairs = stats.kept_pairs,
                      .density = stats.k > 0 ? static_cast<double>(stats.kept_pairs) / elements : 1,
                      .payload_bytes = stats.payload_bytes,
                      .predicted_ms = bucket.predicted_us / 1e3,
                      .measured_ms = bucket.span.milliseconds(),
                      .residual_norm = residual,
                      .gradient_norm = gradient});
  }
  return result;
}

float CompressedSet::corrected_momentum(std::size_t gradient) const {
  const CompressedBucket* const bucket = bucket_of(gradient);
  return bucket == nullptr ? 0.0f : bucket->tensors.spec.momentum;
}

bool CompressedSet::is_warming_up(std::size_t gradient) const {
  const CompressedBucket* const bucket = bucket_of(gradient);
  return bucket != nullptr && bucket->codec->is_warming_up();
}

const CompressedBucket* CompressedSet::bucket_of(std::size_t gradient) const {
  const auto found = std::ranges::find_if(buckets_, [&](const CompressedBucket& bucket) {
    return std::ranges::count(bucket.tensors.gradients, gradient) > 0;
  });
  return found == buckets_.end() ? nullptr : &*found;
}

// --- State --------------------------------------------------------------------------------------

void CompressedSet::save(CompressionState& state) const {
  for (const CompressedBucket& bucket : buckets_) {
    state.step = bucket.codec->step();
    std::ranges::move(bucket.codec->save().tensors, std::back_inserter(state.feedback.tensors));
  }
}

void CompressedSet::load(const CompressionState& state) {
  // Each compressed bucket extracts its own state. All checks precede the first change.
  std::vector<FeedbackState> parts;
  std::size_t taken = 0;
  for (const CompressedBucket& bucket : buckets_) {
    FeedbackState& part = parts.emplace_back();
    for (const FeedbackTensor& tensor : bucket.codec->share(1).tensors) {
      const auto found =
          std::ranges::find(state.feedback.tensors, tensor.name, &FeedbackState::Tensor::name);
      if (found != state.feedback.tensors.end()) part.tensors.push_back(*found);
    }
    bucket.codec->check_state(part);
    taken += part.tensors.size();
  }
  if (taken != state.feedback.tensors.size()) {
    throw KoloError({.code = ErrorCode::kData,
                     .what = "state of compression: it has tensors that are not in this set"});
  }
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    buckets_[i].codec->load(parts[i]);
    buckets_[i].codec->set_step(static_cast<std::size_t>(state.step));
  }
}

FeedbackState CompressedSet::remap_from(std::span<const FeedbackState> old_ranks,
                                        double factor) const {
  std::set<std::string_view> taken;
  for (const CompressedBucket& bucket : buckets_) {
    for (const FeedbackTensor& tensor : bucket.tensors.tensors) taken.insert(tensor.name);
  }
  for (const FeedbackState& rank : old_ranks) {
    for (const FeedbackState::Tensor& tensor : rank.tensors) {
      if (taken.contains(tensor.name) || !has_feedback(tensor)) continue;
      throw KoloError({.code = ErrorCode::kData,
                       .what = fmt::format("state of compression: it has a residual or a velocity "
                                           "of '{}', which this set does not compress; name a "
                                           "spec that does",
                                           tensor.name)});
    }
  }
  FeedbackState own;
  for (const CompressedBucket& bucket : buckets_) {
    std::ranges::move(remap(old_ranks, bucket.codec->share(factor)).tensors,
                      std::back_inserter(own.tensors));
  }
  return own;
}

double CompressedSet::drop_residuals() {
  double norm = 0;
  for (const CompressedBucket& bucket : buckets_) {
    for (std::size_t i = 0; i < bucket.tensors.gradients.size(); ++i) {
      norm = std::hypot(norm, bucket.codec->residual_norm(i));
    }
    bucket.codec->drop_residuals();
  }
  return norm;
}

}  // namespace kolo
