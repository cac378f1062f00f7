#include "runtime/gradients/gradient_set_state.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "comm/base/check.h"
#include "comm/base/error.h"
#include "comm/kernels/reduce_kernels.h"
#include "fusion/gradient_checks.h"

namespace kolo {
GradientSetState::GradientSetState(std::string name, std::vector<GradientSpec> gradients,
                                   GradientOptions options, CompressionChoices choices)
    : name_(std::move(name)),
      size_(gradients.size()),
      gradients_(GradientDivisor::with_weights(std::move(gradients), options.divisor)),
      travelling_(gradients_),
      options_(std::move(options)),
      choices_(std::move(choices)) {}

std::string GradientSetState::describe() const {
  return fmt::format("gradient set '{}': {}{}", name_, kolo::describe(gradients_, options_),
                     kolo::describe(choices_, gradients_));
}

void* GradientSetState::allocate(std::size_t bytes) {
  memory_.push_back(allocate_aligned(bytes));
  return memory_.back().get();
}

void* GradientSetState::allocate_on_device(std::size_t bytes) {
  device_memory_.push_back(device_->allocate(bytes, MemoryKind::kDevice));
  return device_memory_.back().data();
}

void GradientSetState::attach(Device& device) {
  device_ = &device;
  events_.attach(device, gradients_);
}

std::shared_ptr<WireState> GradientSetState::wire_state(int ranks) {
  if (!wire_state_) wire_state_ = std::make_shared<WireState>(gradients_.size(), ranks);
  return wire_state_;
}

void GradientSetState::placed(std::vector<BufferView> views,
                              std::vector<std::optional<std::size_t>> arena_offsets,
                              std::optional<std::size_t> arena_region, int ranks) {
  views_ = std::move(views);
  arena_offsets_ = std::move(arena_offsets);
  arena_region_ = arena_region;
  if (options_.divisor != Divisor::kAllRanks) divisor_.emplace(options_.divisor, views_, ranks);
}

std::optional<std::size_t> GradientSetState::arena_place(std::size_t gradient) const {
  if (!arena_offsets_[gradient]) return std::nullopt;
  return *arena_region_ + *arena_offsets_[gradient];
}

void GradientSetState::planned(Plan plan, std::vector<BucketId> buckets,
                               std::vector<const Event*> finished_events, PlanSummary summary) {
  buckets_ = std::move(buckets);
  events_.plan(plan, std::move(finished_events));
  iterations_.plan(std::move(plan));
  const MutexLock lock(mutex_);
  summary_ = std::move(summary);
  summary_.compression_decisions = choices_.decisions;
}

bool GradientSetState::is_undecided(std::size_t gradient) const {
  return std::ranges::any_of(choices_.open, [&](const OpenChoice& open) {
    return std::ranges::count(open.tensors.gradients, gradient) > 0;
  });
}

void GradientSetState::measure_dense_steps(const Clock& clock, std::function<void()> cast_vote) {
  cast_vote_ = std::move(cast_vote);
  iterations_.begin_measured(clock);
}

bool GradientSetState::settle(const DenseSteps& measured, const ProcessGrid& grid,
                              const LinkCosts& costs) {
  const bool has_changed = settle_compression(travelling_, choices_, measured, grid, costs);
  // Gradients in the arena keep their memory, so newly compressed gradients leave gaps in buckets.
  for (std::size_t i = 0; has_changed && i < travelling_.size(); ++i) {
    travelling_[i].data = views_[i].data;
  }
  const MutexLock lock(mutex_);
  summary_.compression_decisions = choices_.decisions;
  return has_changed;
}

CompressionState GradientSetState::save_compression() const {
  CompressionState state;
  compressed_.save(state);
  for (std::size_t i = 0; wire_state_ && i < gradients_.size(); ++i) {
    state.wires.push_back({.gradient = gradients_[i].name, .memory = wire_state_->memory(i)});
  }
  return state;
}

void GradientSetState::check_decided(std::span<const CompressionState> states) const {
  const auto has_tensors = [](const auto& state) { return !state.feedback.tensors.empty(); };
  if (!is_open() || std::ranges::none_of(states, has_tensors)) return;
  throw KoloError({.code = ErrorCode::kData,
                   .bucket = name_,
                   .what =
                       "state of compression: it has residuals of sparse gradients, but "
                       "auto has not decided yet in this job; name the spec that it chose before"});
}

void GradientSetState::load_compression(const CompressionState& state) {
  check_decided({&state, 1});
  // Only gradients that are cast in host memory have exponents: others have no use for saved ones,
  // and gradients without saved ones begin afresh.
  const std::size_t wires = wire_state_ && !state.wires.empty() ? gradients_.size() : 0;
  bool fits = wires == 0 || state.wires.size() == wires;
  for (std::size_t i = 0; fits && i < wires; ++i) {
    fits = state.wires[i].gradient == gradients_[i].name;
  }
  if (!fits) {
    throw KoloError({.code = ErrorCode::kData,
                     .bucket = name_,
                     .what = "state of compression: it has wire exponents of other gradients"});
  }
  compressed_.load(state);
  for (std::size_t i = 0; i < wires; ++i) wire_state_->resume(i, state.wires[i].memory);
}

void GradientSetState::remap_compression(std::span<const CompressionState> old_ranks,
                                         int world_size) {
  check_decided(old_ranks);
  CompressionState state = common_state(old_ranks);
  std::vector<FeedbackState> feedback;
  for (const CompressionState& rank : old_ranks) feedback.push_back(rank.feedback);
  const bool averages = options_.op == ReduceOp::kAverage;
  const double ratio = static_cast<double>(world_size) / static_cast<double>(old_ranks.size());
  state.feedback = compressed_.remap_from(feedback, averages ? ratio : 1.0);
  load_compression(state);
}

std::optional<GradientIterations::ReadyBucket> GradientSetState::mark(std::size_t gradient) {
  if (!divisor_) return iterations_.mark(gradient);
  iterations_.check_index(gradient);
  divisor_->check_weight();
  iterations_.claim(gradient, MarkCall::kReady);
  divisor_->contribute(gradient);
  return iterations_.mark_claimed(gradient);
}

std::optional<GradientIterations::ReadyBucket> GradientSetState::mark_absent(
    std::size_t gradient, std::optional<NativeStream> stream) {
  iterations_.check_index(gradient);
  const bool on_device = gradients_[gradient].memory == MemoryKind::kDevice;
  const bool sums = options_.op == ReduceOp::kSum || options_.op == ReduceOp::kAverage;
  check(!on_device || sums, [&] {
    return fmt::format(
        "absent() for gradient '{}': in device memory it is for sums and averages, "
        "not for {}",
        gradients_[gradient].name, to_string(options_.op));
  });
  check(on_device || !stream, "absent() on a stream is for gradients in device memory");
  iterations_.claim(gradient, MarkCall::kAbsent);
  if (on_device) {
    events_.clear(gradient, views_[gradient], stream);
  } else {
    fill_identity(views_[gradient], options_.op);
  }
  if (divisor_) divisor_->lacks(gradient);
  return iterations_.mark_claimed(gradient);
}

bool GradientSetState::wait(std::chrono::milliseconds timeout, ProgressEngine* progress_engine) {
  if (!iterations_.wait(timeout, progress_engine)) return false;
  if (divisor_) divisor_->divide();
  return true;
}

bool GradientSetState::wait(std::chrono::milliseconds timeout, NativeStream stream,
                            ProgressEngine* progress_engine) {
  if (!iterations_.wait(timeout, stream, progress_engine)) return false;
  if (divisor_) divisor_->divide();  // All gradients are in host memory, so they are combined.
  return true;
}

bool GradientSetState::wait_for(std::size_t gradient, std::chrono::milliseconds timeout,
                                ProgressEngine* progress_engine) {
  iterations_.check_index(gradient);
  if (!iterations_.wait_for(gradient, timeout, progress_engine)) return false;
  if (divisor_) divisor_->divide(gradient);
  return true;
}

std::vector<std::size_t> GradientSetState::take_combined() {
  std::vector<std::size_t> gradients = iterations_.take_combined();
  if (divisor_) {
    for (const std::size_t gradient : gradients) divisor_->divide(gradient);
  }
  return gradients;
}

void GradientSetState::set_samples(double samples) {
  check(divisor_.has_value(), "set_samples() is for sets whose divisor is samples");
  divisor_->set_samples(samples);
}

PlanSummary GradientSetState::summary() const {
  const MutexLock lock(mutex_);
  return summary_;
}

void GradientSetState::bucket_finished(std::size_t index) {
  if (iterations_.bucket_finished(index) && !failed()) cast_vote_();
}

std::string_view GradientSetState::stand_in(std::uint64_t) {
  const bool sums = options_.op == ReduceOp::kSum || options_.op == ReduceOp::kAverage;
  const auto is_on_device = [](const auto& each) { return each.memory == MemoryKind::kDevice; };
  if (!sums && std::ranges::any_of(gradients_, is_on_device)) {
    return "in device memory it has no element that leaves a result alone";
  }
  if (stands_in()) return {};
  // It counts before this thread looks; a thread that lets go looks afterwards whether it counts.
  iterations_.stand_in_began();
  const auto is_of_user = [](const auto& each) { return each.data != nullptr; };
  if (!is_held_ && std::ranges::any_of(gradients_, is_of_user)) {
    iterations_.stand_in_ended();
    return "it has destroyed the set";
  }
  stand_in_ = StandIn::kDue;
  return {};
}

/// Runs an iteration as if this rank marked all gradients absent and then waited.
std::vector<std::size_t> GradientSetState::move_stand_in() {
  std::vector<std::size_t> buckets;
  if (stand_in_ == StandIn::kNone) return buckets;
  if (failed()) {
    stand_in_ = StandIn::kNone;
    iterations_.stand_in_ended();
  } else if (stand_in_ == StandIn::kDue) {
    const auto take = [&](const auto& bucket) {
      if (bucket) buckets.push_back(bucket->index);
    };
    stand_in_ = StandIn::kUnderWay;
    for (std::size_t i = 0; i < size_; ++i) take(mark_absent(i));
    take(mark_weights());
    iterations_.begin_wait();
  } else if (iterations_.is_over() && compressed_.advance_check()) {
    stand_in_ = StandIn::kNone;
    wait(std::chrono::milliseconds(0));  // Returns at once.
    iterations_.stand_in_ended();
  }
  return buckets;
}

void GradientSetState::fail(const Error& error) noexcept {
  iterations_.fail(error);
  registration_.fail(error);
}

std::vector<BucketId> GradientSetState::buckets_rejected_with(BucketId) const {
  std::vector<BucketId> ids = compressed_.ids();
  ids.insert(ids.end(), buckets_.begin(), buckets_.end());
  return ids;
}

}  // namespace kolo
