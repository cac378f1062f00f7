#include "runtime/engine/gradient_group.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "comm/base/check.h"
#include "runtime/engine/caught.h"
#include "runtime/wait/waiting.h"

namespace kolo {
namespace {

constexpr std::size_t kMostNamesQuoted = 5;

std::string quote(const std::vector<std::string_view>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i == kMostNamesQuoted) return text + fmt::format(" and {} more", names.size() - i);
    text += fmt::format("{}'{}'", i == 0 ? "" : ", ", names[i]);
  }
  return text;
}

}  // namespace

GradientGroup::GradientGroup(std::string name, std::vector<GradientSpec> gradients,
                             GradientOptions options, CompressionChoices choices)
    : name_(std::move(name)),
      gradients_(std::move(gradients)),
      travelling_(gradients_),
      options_(std::move(options)),
      choices_(std::move(choices)),
      marked_(gradients_.size()) {}

std::string GradientGroup::describe() const {
  return fmt::format("gradient set '{}': {}{}", name_, kolo::describe(gradients_, options_),
                     kolo::describe(choices_, gradients_));
}

void* GradientGroup::allocate(std::size_t bytes) {
  memory_.push_back(allocate_aligned(bytes));
  return memory_.back().get();
}

void* GradientGroup::allocate_on_device(std::size_t bytes) {
  device_memory_.push_back(device_->allocate(bytes, MemoryKind::kDevice));
  return device_memory_.back().data();
}

void GradientGroup::attach(Device& device) {
  device_ = &device;
  for (const GradientSpec& gradient : gradients_) {
    ready_events_.push_back(gradient.memory == MemoryKind::kDevice ? device.make_event() : nullptr);
  }
}

std::shared_ptr<WireState> GradientGroup::wire_state(int ranks) {
  if (!wire_state_) wire_state_ = std::make_shared<WireState>(gradients_.size(), ranks);
  return wire_state_;
}

void GradientGroup::placed(std::vector<BufferView> views,
                           std::vector<std::optional<std::size_t>> arena_offsets,
                           std::optional<std::size_t> arena_region) {
  views_ = std::move(views);
  arena_offsets_ = std::move(arena_offsets);
  arena_region_ = arena_region;
}

std::optional<std::size_t> GradientGroup::arena_place(std::size_t gradient) const {
  if (!arena_offsets_[gradient]) return std::nullopt;
  return *arena_region_ + *arena_offsets_[gradient];
}

void GradientGroup::planned(const Plan& plan, std::vector<BucketId> buckets,
                            std::vector<const Event*> finished_events, PlanSummary summary) {
  const std::lock_guard lock(mutex_);
  buckets_ = std::move(buckets);
  finished_events_ = std::move(finished_events);
  summary_ = std::move(summary);
  readiness_.emplace(plan);
  spans_.assign(buckets_.size(), {});
}

void GradientGroup::begin() {
  const std::lock_guard lock(mutex_);
  begin_iteration();
}

void GradientGroup::measure_dense_steps(const Clock& clock, std::function<void()> cast_vote) {
  cast_vote_ = std::move(cast_vote);
  const std::lock_guard lock(mutex_);
  step_times_.start(clock);
  until_vote_ = kMeasuredIterations;
  begin_iteration();
}

DenseSteps GradientGroup::take_dense_steps() {
  const std::lock_guard lock(mutex_);
  return step_times_.take();
}

bool GradientGroup::settle(const DenseSteps& measured, const ProcessGrid& grid,
                           const LinkCosts& costs) {
  CompressionChoices choices = choices_;
  const bool has_changed = settle_compression(travelling_, choices, measured, grid, costs);
  // Those in the arena stay there, with gaps where others have left the buckets.
  for (std::size_t i = 0; has_changed && i < travelling_.size(); ++i) {
    travelling_[i].data = views_[i].data;
  }
  const std::lock_guard lock(mutex_);
  choices_ = std::move(choices);
  return has_changed;
}

void GradientGroup::end_vote() {
  {
    const std::lock_guard lock(mutex_);
    ++enqueued_;
    ++finished_;
  }
  changed_.notify_all();
}

void GradientGroup::begin_iteration() {
  ends_with_vote_ = until_vote_ == 1;
  if (until_vote_ > 0) --until_vote_;
  ended_ = target_;
  target_ += parts() + (ends_with_vote_ ? 1 : 0);
}

CompressionState GradientGroup::save_compression() const {
  CompressionState state;
  compressed_.save(state);
  for (std::size_t i = 0; wire_state_ && i < gradients_.size(); ++i) {
    state.wires.push_back({.gradient = gradients_[i].name, .memory = wire_state_->memory(i)});
  }
  return state;
}

void GradientGroup::load_compression(const CompressionState& state) {
  if (is_open() && !state.feedback.tensors.empty()) {
    throw KoloError(
        {.code = ErrorCode::kData,
         .bucket = name_,
         .what = "state of compression: it has residuals of sparse gradients, but "
                 "auto has not decided yet in this job; name the spec that it chose before"});
  }
  const std::size_t wires = wire_state_ ? gradients_.size() : 0;
  bool fits = state.wires.size() == wires;
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

void GradientGroup::remap_compression(std::span<const CompressionState> old_ranks, int world_size) {
  CompressionState state = common_state(old_ranks);
  std::vector<FeedbackState> feedback;
  for (const CompressionState& rank : old_ranks) feedback.push_back(rank.feedback);
  const bool averages = options_.op == ReduceOp::kAverage;
  const double ratio = static_cast<double>(world_size) / static_cast<double>(old_ranks.size());
  state.feedback = compressed_.remap_from(feedback, averages ? ratio : 1.0);
  load_compression(state);
}

PlanSummary GradientGroup::summary() const {
  const std::lock_guard lock(mutex_);
  PlanSummary summary = summary_;
  summary.compression_decisions = choices_.decisions;
  return summary;
}

void GradientGroup::bucket_started(std::size_t index) {
  const bool is_dense = index < CompressedSet::kFirst;
  if (is_dense && !timeline_) return;
  const TimePoint now = std::chrono::steady_clock::now();
  if (!is_dense) return compressed_.started(index, now);
  const std::lock_guard lock(mutex_);
  spans_[index].began = now;
}

void GradientGroup::bucket_enqueued(std::size_t) {
  {
    const std::lock_guard lock(mutex_);
    if (++enqueued_ < target_) return;
  }
  changed_.notify_all();
}

void GradientGroup::bucket_finished(std::size_t index) {
  if (index >= CompressedSet::kFirst) compressed_.finished(index, std::chrono::steady_clock::now());
  bool is_over = false, is_vote_left = false;
  {
    const std::lock_guard lock(mutex_);
    if (timeline_ && index < CompressedSet::kFirst) {
      spans_[index].ended = std::chrono::steady_clock::now();
    }
    const bool is_on_host = index >= CompressedSet::kFirst || finished_events_[index] == nullptr;
    if (is_on_host) ++enqueued_;
    ++finished_;
    is_over = finished_ == target_;
    is_vote_left = ends_with_vote_ && finished_ + 1 == target_;
  }
  if (is_over) changed_.notify_all();
  if (is_vote_left && !failed()) cast_vote_();
}

std::vector<BucketId> GradientGroup::buckets_rejected_with(BucketId) const {
  std::vector<BucketId> ids = compressed_.ids();
  ids.insert(ids.end(), buckets_.begin(), buckets_.end());
  return ids;
}

void GradientGroup::fail(const Error& error) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = copied(error);
    has_failed_.store(true, std::memory_order_release);
  }
  registration_.fail(error);
  changed_.notify_all();
}

std::optional<GradientGroup::ReadyBucket> GradientGroup::note_ready(std::size_t index) {
  check(index < gradients_.size(), "no gradient has this index");
  const std::lock_guard lock(mutex_);
  if (error_) throw KoloError(*error_);
  if (marked_[index]) {
    throw UsageError(fmt::format("ready() was called twice for gradient '{}' in one iteration",
                                 gradients_[index].name));
  }
  marked_[index] = true;
  const bool is_last = ++marks_ == gradients_.size();
  const auto bucket = compressed_.has(index) ? compressed_.mark(index) : readiness_->mark(index);
  if (!bucket) return std::nullopt;
  return ReadyBucket{
      .index = *bucket, .is_last = is_last, .expects_wait = is_last && prompt_waits_.expected()};
}

std::optional<GradientGroup::ReadyBucket> GradientGroup::note_ready(std::size_t index,
                                                                    NativeStream stream) {
  check(index < gradients_.size(), "no gradient has this index");
  check(gradients_[index].memory == MemoryKind::kDevice,
        "ready() on a stream is for gradients in device memory");
  device_->record(stream, *ready_events_[index]);
  return note_ready(index);
}

void GradientGroup::end_marking() {
  const std::lock_guard lock(mutex_);
  prompt_waits_.goes_on(std::chrono::steady_clock::now());
}

bool GradientGroup::wait(std::chrono::milliseconds timeout, Driver* driver) {
  return wait_for(finished_, timeout, driver);
}

bool GradientGroup::wait(std::chrono::milliseconds timeout, NativeStream stream, Driver* driver) {
  check(device_ != nullptr, "wait() on a stream is for gradients in device memory");
  if (!wait_for(enqueued_, timeout, driver)) return false;
  for (const Event* event : finished_events_) {
    if (event != nullptr) device_->wait(stream, *event);
  }
  return true;
}

bool GradientGroup::wait_for(const std::atomic<std::size_t>& progress,
                             std::chrono::milliseconds timeout, Driver* driver) {
  const TimePoint now = std::chrono::steady_clock::now();
  std::size_t target = 0;
  {
    const std::lock_guard lock(mutex_);
    if (!error_ && marks_ < gradients_.size()) {
      throw UsageError(
          fmt::format("wait() before ready() for {} of set '{}'", unmarked_names(), name_));
    }
    target = target_;
    prompt_waits_.waits(now);
    step_times_.begin_wait();
  }
  const auto settled = [&] {
    return failed() || progress.load(std::memory_order_acquire) >= target;
  };
  bool in_time = false;
  {
    const Waiting waiting(waiters_);
    in_time = wait_until(deadline_after(timeout, now), driver, settled, mutex_, changed_);
  }
  const std::lock_guard lock(mutex_);
  if (error_) throw KoloError(*error_);
  if (!in_time) return false;
  compressed_.end_step();
  if (timeline_) write_iteration({.began = now, .ended = std::chrono::steady_clock::now()});
  marks_ = 0;
  marked_.assign(marked_.size(), false);
  step_times_.end_step();
  begin_iteration();
  return true;
}

bool GradientGroup::all_enqueued() const {
  const std::lock_guard lock(mutex_);
  return enqueued_ >= target_;
}

bool GradientGroup::in_flight() const {
  const std::lock_guard lock(mutex_);
  return !error_ && (marks_ > 0 || finished_ < ended_);
}

void GradientGroup::write_iteration(const Timeline::Span& waited) const {
  for (std::size_t i = 0; i < spans_.size(); ++i) {
    // One in device memory may still be under way.
    if (spans_[i].ended >= spans_[i].began) timeline_->bucket(name_, i, spans_[i]);
  }
  const std::vector<CompressionStats> groups = compressed_.stats(views_);
  for (std::size_t i = 0; i < groups.size(); ++i) {
    timeline_->group(name_, groups[i], compressed_.span(i));
  }
  timeline_->wait(name_, waited);
}

std::string GradientGroup::unmarked_names() const {
  std::vector<std::string_view> names;
  for (std::size_t i = 0; i < gradients_.size(); ++i) {
    if (!marked_[i]) names.push_back(gradients_[i].name);
  }
  return quote(names);
}

}  // namespace kolo
