#include "runtime/gradients/gradient_iterations.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "comm/base/check.h"
#include "comm/base/text.h"
#include "comm/transport/doorbell.h"
#include "runtime/gradients/compression_choice.h"
#include "runtime/wait/caught.h"
#include "runtime/wait/progress_engine.h"

namespace kolo {

GradientIterations::GradientIterations(const std::string& name,
                                       const std::vector<GradientSpec>& gradients, std::size_t size,
                                       CompressedSet& compressed, GradientEvents& events)
    : name_(name),
      gradients_(gradients),
      size_(size),
      compressed_(compressed),
      events_(events),
      taken_(size),
      calls_(gradients.size()),
      marked_(gradients.size()) {}

// --- The user's threads -------------------------------------------------------------------------

std::optional<GradientIterations::ReadyBucket> GradientIterations::mark(std::size_t gradient) {
  const MutexLock lock(mutex_);
  take(gradient, MarkCall::kReady);
  return count(gradient);
}

void GradientIterations::claim(std::size_t gradient, MarkCall call) {
  const MutexLock lock(mutex_);
  take(gradient, call);
}

std::optional<GradientIterations::ReadyBucket> GradientIterations::mark_claimed(
    std::size_t gradient) {
  const MutexLock lock(mutex_);
  if (error_) throw KoloError(*error_);
  return count(gradient);
}

std::optional<GradientIterations::ReadyBucket> GradientIterations::mark_weights() {
  if (size_ == gradients_.size()) return std::nullopt;
  const MutexLock lock(mutex_);
  if (error_) throw KoloError(*error_);
  if (marks_ != size_) return std::nullopt;  // The weights may be marked already.
  return count(size_);
}

void GradientIterations::check_index(std::size_t gradient) const {
  check(gradient < size_, [&] {
    return fmt::format("no gradient has the index {}; set '{}' has {}, from 0 on", gradient, name_,
                       size_);
  });
}

void GradientIterations::take(std::size_t gradient, MarkCall call) {
  check_index(gradient);
  if (error_) throw KoloError(*error_);
  check(!is_suspended_, [&] {
    return fmt::format(
        "gradient set '{}' is registered anew, and that is not decided; repeat the registration",
        name_);
  });
  MarkCall& former = calls_[gradient];
  if (former == MarkCall::kNone) {
    former = call;
    return;
  }
  const std::string& name = gradients_[gradient].name;
  if (former != call) {
    throw UsageError(fmt::format(
        "ready() and absent() were both called for gradient '{}' in one iteration", name));
  }
  throw UsageError(fmt::format(
      "{}() was called twice for gradient '{}' in one iteration; is a wait() missing, which ends "
      "an iteration?",
      call == MarkCall::kReady ? "ready" : "absent", name));
}

std::optional<GradientIterations::ReadyBucket> GradientIterations::count(std::size_t gradient) {
  marked_[gradient] = true;
  const bool is_last = ++marks_ == gradients_.size();
  if (is_last && event_) step_times_.begin_wait();
  const auto bucket = readiness_->mark(gradient);
  if (!bucket) return std::nullopt;
  return ReadyBucket{
      .index = *bucket < dense_ ? *bucket : CompressedSet::kFirst + (*bucket - dense_),
      .is_last = is_last,
      .expects_wait = is_last && !event_ && habit_.expects_wait()};
}

std::optional<GradientIterations::ReadyBucket> GradientIterations::mark(std::size_t gradient,
                                                                        NativeStream stream) {
  check_index(gradient);
  check(gradients_[gradient].memory == MemoryKind::kDevice,
        "ready() on a stream is for gradients in device memory");
  claim(gradient, MarkCall::kReady);
  events_.record(gradient, stream);
  return mark_claimed(gradient);
}

void GradientIterations::end_marking() {
  const MutexLock lock(mutex_);
  went_on_ = std::chrono::steady_clock::now();
}

bool GradientIterations::wait(std::chrono::milliseconds timeout, ProgressEngine* progress_engine) {
  return wait_until_all(finished_, timeout, progress_engine);
}

bool GradientIterations::wait(std::chrono::milliseconds timeout, NativeStream stream,
                              ProgressEngine* progress_engine) {
  check(events_.has_device(), "wait() on a stream is for gradients in device memory");
  if (!wait_until_all(compressed_.size() > 0 ? finished_ : enqueued_, timeout, progress_engine)) {
    return false;
  }
  events_.await_all(stream);
  return true;
}

bool GradientIterations::wait_until_all(const std::atomic<std::size_t>& progress,
                                        std::chrono::milliseconds timeout,
                                        ProgressEngine* progress_engine) {
  const TimePoint now = std::chrono::steady_clock::now();
  std::size_t target = 0;
  {
    const MutexLock lock(mutex_);
    begin_waiting(now);
    target = target_;
  }
  const auto settled = [&] {
    return failed() || progress.load(std::memory_order_acquire) >= target;
  };
  bool in_time = false;
  {
    const Waiting waiting(waiters_);
    in_time = wait_until(Deadline(timeout, now), progress_engine, settled, mutex_, changed_);
  }
  // Reads all dense gradients, without the lock: the engine does not use them until the next
  // iteration.
  const bool is_finite = in_time && !failed() && compressed_.is_finite();
  {
    const MutexLock lock(mutex_);
    if (error_) throw KoloError(*error_);
    if (!in_time) return false;
    compressed_.end_step(is_finite);
  }
  const Timeline::Span waited{.began = now, .ended = std::chrono::steady_clock::now()};
  std::vector<CompressionStats> groups;  // Reads residuals, without the lock as well.
  if (timeline_) groups = compressed_.stats(CompressedSet::Norms::kInHostMemory);
  const MutexLock lock(mutex_);
  if (timeline_) write(groups, waited);
  marks_ = 0;
  calls_.assign(calls_.size(), MarkCall::kNone);
  marked_.assign(marked_.size(), false);
  step_times_.end_step();
  begin_next();
  return true;
}

bool GradientIterations::wait_for(std::size_t gradient, std::chrono::milliseconds timeout,
                                  ProgressEngine* progress_engine) {
  const TimePoint now = std::chrono::steady_clock::now();
  {
    const MutexLock lock(mutex_);
    begin_waiting(now);
    if (error_) throw KoloError(*error_);
    if (is_combined(gradient)) {
      step_times_.pause_wait();
      return true;
    }
    awaited_ = gradient;
    awaited_is_over_.store(false, std::memory_order_relaxed);
  }
  const auto settled = [&] { return failed() || awaited_is_over_.load(std::memory_order_acquire); };
  bool in_time = false;
  {
    const Waiting waiting(waiters_);
    in_time = wait_until(Deadline(timeout, now), progress_engine, settled, mutex_, changed_);
  }
  const MutexLock lock(mutex_);
  awaited_.reset();
  if (error_) throw KoloError(*error_);
  if (!in_time) return false;
  step_times_.pause_wait();
  if (timeline_) {
    timeline_->wait(name_, {.began = now, .ended = std::chrono::steady_clock::now()});
  }
  return true;
}

int GradientIterations::event() {
  const MutexLock lock(mutex_);
  if (!event_) {
    event_ = make_event_fd();
    if (error_ || finished_ > 0) raise_event(event_.get());  // It may be raised without cause.
  }
  return event_.get();
}

std::vector<std::size_t> GradientIterations::take_combined() {
  const MutexLock lock(mutex_);
  if (error_) throw KoloError(*error_);
  if (event_) drain_event(event_.get());
  std::vector<std::size_t> gradients;
  for (std::size_t i = 0; i < size_; ++i) {
    if (taken_[i] || !is_combined(i)) continue;
    taken_[i] = true;
    gradients.push_back(i);
  }
  return gradients;
}

bool GradientIterations::is_combined(std::size_t gradient) const {
  const auto is_over = [&](std::size_t member) KOLO_REQUIRES(mutex_) {
    return ends_[readiness_->bucket_of(member)] >= begun_;
  };
  return is_over(gradient) && (size_ == gradients_.size() || is_over(size_));
}

void GradientIterations::begin_waiting(TimePoint now) {
  if (!error_ && marks_ < size_) {
    throw UsageError(
        fmt::format("wait() before ready() for {} of set '{}'; give_up() ends an iteration of "
                    "which a rank cannot compute more",
                    names_of(find_unmarked()), name_));
  }
  if (const auto since = std::exchange(went_on_, std::nullopt)) habit_.waits(now - *since);
  step_times_.begin_wait();
}

bool GradientIterations::is_watched() const {
  const MutexLock lock(mutex_);
  return event_ && marks_ == gradients_.size();
}

bool GradientIterations::finish(std::chrono::milliseconds timeout,
                                ProgressEngine* progress_engine) {
  std::size_t target = 0;
  {
    const MutexLock lock(mutex_);
    if (error_ || marks_ > 0) return false;
    target = ended_;
  }
  const auto settled = [&] {
    return failed() || finished_.load(std::memory_order_acquire) >= target;
  };
  const Waiting waiting(waiters_);
  return wait_until(Deadline(timeout), progress_engine, settled, mutex_, changed_) && !failed();
}

bool GradientIterations::await_stop(std::chrono::milliseconds timeout,
                                    ProgressEngine* progress_engine) {
  const auto settled = [this] { return failed() && running_ == 0; };
  return wait_until(Deadline(timeout), progress_engine, settled, mutex_, changed_);
}

bool GradientIterations::await_rest(std::chrono::milliseconds timeout,
                                    ProgressEngine* progress_engine) {
  const auto settled = [this] { return running_ == 0; };
  return wait_until(Deadline(timeout), progress_engine, settled, mutex_, changed_);
}

std::vector<std::size_t> GradientIterations::unmarked() const {
  const MutexLock lock(mutex_);
  return find_unmarked();
}

std::string GradientIterations::names_of(const std::vector<std::size_t>& gradients) const {
  std::vector<std::string_view> names;
  for (const std::size_t gradient : gradients) names.push_back(gradients_[gradient].name);
  return quoted(names);
}

bool GradientIterations::all_enqueued() const {
  const MutexLock lock(mutex_);
  return (compressed_.size() > 0 ? finished_ : enqueued_) >= target_;
}

bool GradientIterations::in_flight() const {
  const MutexLock lock(mutex_);
  return !error_ && (marks_ > 0 || finished_ < ended_);
}

void GradientIterations::write(const std::vector<CompressionStats>& groups,
                               const Timeline::Span& waited) const {
  for (std::size_t i = 0; i < spans_.size(); ++i) {
    // A bucket in device memory may still be running.
    if (spans_[i].ended >= spans_[i].began) timeline_->bucket(name_, i, spans_[i]);
  }
  for (std::size_t i = 0; i < groups.size(); ++i) {
    timeline_->group(name_, groups[i], compressed_.span(i));
  }
  timeline_->wait(name_, waited);
}

std::vector<std::size_t> GradientIterations::find_unmarked() const {
  std::vector<std::size_t> gradients;
  for (std::size_t i = 0; i < size_; ++i) {
    if (!marked_[i]) gradients.push_back(i);
  }
  return gradients;
}

// --- The engine's thread ------------------------------------------------------------------------

void GradientIterations::plan(Plan dense) {
  const MutexLock lock(mutex_);
  dense_ = dense.buckets.size();
  compressed_.append_to(dense);
  readiness_.emplace(dense);
  // If an iteration is in progress, all its buckets are over.
  ends_.assign(dense.buckets.size(), begun_);
}

void GradientIterations::begin() {
  const MutexLock lock(mutex_);
  begin_next();
}

void GradientIterations::begin_measured(const Clock& clock) {
  const MutexLock lock(mutex_);
  step_times_.start(clock);
  until_vote_ = kMeasuredIterations;
  begin_next();
}

DenseSteps GradientIterations::take_dense_steps() {
  const MutexLock lock(mutex_);
  return step_times_.take();
}

void GradientIterations::begin_wait() {
  const MutexLock lock(mutex_);
  step_times_.begin_wait();
}

bool GradientIterations::suspend() {
  const MutexLock lock(mutex_);
  const bool is_claimed =
      std::ranges::any_of(calls_, [](MarkCall call) { return call != MarkCall::kNone; });
  if (!error_ && (is_claimed || finished_ < ended_)) return false;
  is_suspended_ = true;
  return true;
}

void GradientIterations::vote_ended() {
  {
    const MutexLock lock(mutex_);
    ++enqueued_;
    ++finished_;
  }
  changed_.notify_all();
}

void GradientIterations::begin_next() {
  ends_with_vote_ = until_vote_ == 1;
  if (until_vote_ > 0) --until_vote_;
  // A new plan may have another number of dense buckets.
  if (spans_.size() != dense_) spans_.assign(dense_, {});
  ++begun_;
  taken_.assign(size_, false);
  if (event_ && !error_) drain_event(event_.get());
  ended_ = target_;
  target_ += dense_ + compressed_.size() + (ends_with_vote_ ? 1 : 0);
}

void GradientIterations::bucket_started(std::size_t index) {
  ++running_;
  const bool is_dense = index < CompressedSet::kFirst;
  if (is_dense && !timeline_) return;
  const TimePoint now = std::chrono::steady_clock::now();
  if (!is_dense) return compressed_.started(index, now);
  const MutexLock lock(mutex_);
  spans_[index].began = now;
}

void GradientIterations::bucket_enqueued() {
  {
    const MutexLock lock(mutex_);
    if (++enqueued_ < target_) return;
  }
  changed_.notify_all();
}

bool GradientIterations::bucket_finished(std::size_t index) {
  if (index >= CompressedSet::kFirst) compressed_.finished(index, std::chrono::steady_clock::now());
  bool is_due = false, is_vote_left = false;
  {
    const MutexLock lock(mutex_);
    if (timeline_ && index < CompressedSet::kFirst) {
      spans_[index].ended = std::chrono::steady_clock::now();
    }
    const bool is_on_host = index >= CompressedSet::kFirst || !events_.is_on_device(index);
    if (is_on_host) ++enqueued_;
    ++finished_;
    --running_;
    is_due = error_ || finished_ == target_ || finished_ == ended_ ||
             (is_on_host && enqueued_ == target_);
    const std::size_t bucket =
        index >= CompressedSet::kFirst ? dense_ + (index - CompressedSet::kFirst) : index;
    ++ends_[bucket];
    if (event_) raise_event(event_.get());
    if (awaited_ && is_combined(*awaited_)) {
      awaited_is_over_.store(true, std::memory_order_release);
      is_due = true;
    }
    is_vote_left = ends_with_vote_ && finished_ + 1 == target_;
  }
  if (is_due) changed_.notify_all();
  return is_vote_left;
}

void GradientIterations::bucket_abandoned() {
  {
    const MutexLock lock(mutex_);
    --running_;
  }
  changed_.notify_all();
}

void GradientIterations::stop() noexcept {
  {
    const MutexLock lock(mutex_);
    running_ = 0;
  }
  changed_.notify_all();
}

void GradientIterations::fail(const Error& error) noexcept {
  {
    const MutexLock lock(mutex_);
    if (!error_) error_ = copied(error);
    has_failed_.store(true, std::memory_order_release);
    if (event_) raise_event(event_.get());
  }
  changed_.notify_all();
}

}  // namespace kolo
