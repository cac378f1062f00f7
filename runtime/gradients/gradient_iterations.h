#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/base/clock.h"
#include "comm/base/mutex.h"
#include "comm/base/unique_handle.h"
#include "fusion/bucket_planner.h"
#include "runtime/gradients/compressed_set.h"
#include "runtime/gradients/gradient_events.h"
#include "runtime/gradients/step_times.h"
#include "runtime/observe/timeline.h"
#include "runtime/wait/wait_policy.h"

namespace kolo {

class ProgressEngine;

/// How the user marks a gradient.
enum class MarkCall : std::uint8_t { kNone, kReady, kAbsent };

/// The iterations of a gradient set. The user's threads mark gradients and wait; the engine's
/// thread counts the parts of an iteration that are over: its buckets, and a vote if it ends with
/// one.
///
/// Thread-safe, by a lock of its own; each section names the threads that call its functions.
class GradientIterations {
 public:
  /// All arguments outlive it. `compressed` and `events` are those of the set. The user marks the
  /// first `size` gradients; further ones hold weights.
  GradientIterations(const std::string& name, const std::vector<GradientSpec>& gradients,
                     std::size_t size, CompressedSet& compressed, GradientEvents& events);

  // --- The user's threads ---------------------------------------------------------------------

  /// A bucket whose gradients are all marked.
  struct ReadyBucket {
    std::size_t index = 0;
    /// No gradient is left to mark in this iteration; the caller then calls `end_marking`.
    bool is_last = false;
    /// In former iterations `wait` followed at once.
    bool expects_wait = false;
  };
  /// Notes that the user marked a gradient. Returns its bucket if that was the bucket's last
  /// unmarked gradient. Errors: UsageError if it was marked before; the error of a failed set.
  std::optional<ReadyBucket> mark(std::size_t gradient) KOLO_EXCLUDES(mutex_);
  /// As `mark`, for a gradient in device memory that a stream is going to write.
  std::optional<ReadyBucket> mark(std::size_t gradient, NativeStream stream);
  /// `mark` in two steps, between which the caller writes the gradient. `claim` throws the errors.
  void claim(std::size_t gradient, MarkCall call) KOLO_EXCLUDES(mutex_);
  std::optional<ReadyBucket> mark_claimed(std::size_t gradient) KOLO_EXCLUDES(mutex_);
  /// Marks the weights, if there are any and all gradients are marked. Errors: as `mark`.
  std::optional<ReadyBucket> mark_weights() KOLO_EXCLUDES(mutex_);
  /// Called when the call that marked the last gradient returns.
  void end_marking() KOLO_EXCLUDES(mutex_);
  /// See `GradientSet::wait`. The caller's thread drives the engine, if there is a progress engine.
  /// Returns false on time-out.
  bool wait(std::chrono::milliseconds timeout, ProgressEngine* progress_engine = nullptr);
  bool wait(std::chrono::milliseconds timeout, NativeStream stream,
            ProgressEngine* progress_engine = nullptr);
  /// See `GradientSet::wait` of one gradient. Also waits for the weights, if there are any.
  bool wait_for(std::size_t gradient, std::chrono::milliseconds timeout,
                ProgressEngine* progress_engine = nullptr) KOLO_EXCLUDES(mutex_);
  /// See `GradientSet::event`.
  int event() KOLO_EXCLUDES(mutex_);
  /// See `GradientSet::take_combined`, without the division by weights.
  std::vector<std::size_t> take_combined() KOLO_EXCLUDES(mutex_);
  /// Waits for former iterations, whose `wait` may have ended on a stream before their end. Returns
  /// false if some gradients of the current iteration are marked, if the set has failed, and on
  /// time-out.
  bool finish(std::chrono::milliseconds timeout, ProgressEngine* progress_engine)
      KOLO_EXCLUDES(mutex_);
  /// Waits until a failing set has failed and none of its buckets runs.
  void await_stop(ProgressEngine* progress_engine) KOLO_EXCLUDES(mutex_);
  /// Whether `wait` on a stream would return at once.
  bool all_enqueued() const KOLO_EXCLUDES(mutex_);

  /// Errors: UsageError unless a gradient has this index.
  void check_index(std::size_t gradient) const;

  // --- Any thread -----------------------------------------------------------------------------

  /// Whether an iteration has begun that is not over, or that no `wait` has completed.
  bool in_flight() const KOLO_EXCLUDES(mutex_);
  /// Whether the memory of gradients may still be in use: by an iteration in flight, or by a bucket
  /// that still runs after the set has failed.
  bool uses_memory() const { return in_flight() || running_ > 0; }
  /// The gradients of this iteration that are not marked.
  std::vector<std::size_t> unmarked() const KOLO_EXCLUDES(mutex_);
  /// Names of gradients, for an error text.
  std::string names_of(const std::vector<std::size_t>& gradients) const;
  /// Whether the set has an error, which every later call throws.
  bool failed() const { return has_failed_.load(std::memory_order_acquire); }
  /// Threads that wait.
  int waiters() const { return waiters_; }
  /// Whether all gradients are marked and the program waits for them through `event`.
  bool is_watched() const KOLO_EXCLUDES(mutex_);

  // --- The engine's thread --------------------------------------------------------------------

  /// Also writes iterations to `timeline`. Call it before the first one.
  void write_to(std::shared_ptr<Timeline> timeline) { timeline_ = std::move(timeline); }
  /// Sets the buckets: those of `dense`, followed by those of the compressed set. Called between
  /// iterations, or as the last part of one.
  void plan(Plan dense) KOLO_EXCLUDES(mutex_);
  /// Begins the first iteration of a set without a vote.
  void begin() KOLO_EXCLUDES(mutex_);
  /// Begins the first of `kMeasuredIterations`. They are timed, and the last one ends with a vote.
  /// `clock` outlives them.
  void begin_measured(const Clock& clock) KOLO_EXCLUDES(mutex_);
  /// Ends timing and returns the times of the measured iterations.
  DenseSteps take_dense_steps() KOLO_EXCLUDES(mutex_);

  void bucket_started(std::size_t index) KOLO_EXCLUDES(mutex_);
  void bucket_enqueued() KOLO_EXCLUDES(mutex_);
  /// Returns whether only a vote is left of the iteration.
  bool bucket_finished(std::size_t index) KOLO_EXCLUDES(mutex_);
  void bucket_abandoned() KOLO_EXCLUDES(mutex_);
  /// The engine has ended, and every bucket with it.
  void stop() noexcept KOLO_EXCLUDES(mutex_);
  /// `wait` is due; until it is called, the set counts as waiting.
  void begin_wait() KOLO_EXCLUDES(mutex_);
  /// Whether `wait` would return at once.
  bool is_over() const KOLO_EXCLUDES(mutex_);
  /// Whether gradients are marked in an iteration that no `wait` has completed.
  bool is_marked() const KOLO_EXCLUDES(mutex_);
  /// The vote is decided and its result planned, which ends the iteration.
  void vote_ended() KOLO_EXCLUDES(mutex_);
  /// Fails the current iteration and every later call. The first error counts.
  void fail(const Error& error) noexcept KOLO_EXCLUDES(mutex_);

 private:
  /// Waits until `progress` has counted the parts of this iteration, then ends it.
  bool wait_until_all(const std::atomic<std::size_t>& progress, std::chrono::milliseconds timeout,
                      ProgressEngine* progress_engine) KOLO_EXCLUDES(mutex_);
  /// The bucket of the gradient and that of the weights are over in this iteration.
  bool is_combined(std::size_t gradient) const KOLO_REQUIRES(mutex_);
  /// Called before a thread waits. Errors: UsageError for gradients that are not marked.
  void begin_waiting(TimePoint now) KOLO_REQUIRES(mutex_);
  void take(std::size_t gradient, MarkCall call) KOLO_REQUIRES(mutex_);
  std::optional<ReadyBucket> count(std::size_t gradient) KOLO_REQUIRES(mutex_);
  void begin_next() KOLO_REQUIRES(mutex_);
  std::vector<std::size_t> find_unmarked() const KOLO_REQUIRES(mutex_);
  /// The iteration that is over, of which `wait` took so long.
  void write(const Timeline::Span& waited) const KOLO_REQUIRES(mutex_);

  const std::string& name_;
  const std::vector<GradientSpec>& gradients_;
  const std::size_t size_;  // without weights
  CompressedSet& compressed_;
  GradientEvents& events_;
  std::shared_ptr<Timeline> timeline_;  // shared with the runtime's other sets; may be null

  mutable Mutex mutex_;
  ConditionVariable changed_;
  std::optional<Readiness> readiness_ KOLO_GUARDED_BY(mutex_);  // dense buckets, then compressed
  std::size_t begun_ KOLO_GUARDED_BY(mutex_) = 0;               // iterations begun
  /// Iterations ended, by bucket as above.
  std::vector<std::size_t> ends_ KOLO_GUARDED_BY(mutex_);
  /// Gradient of the current `wait_for`.
  std::optional<std::size_t> awaited_ KOLO_GUARDED_BY(mutex_);
  FileDescriptor event_ KOLO_GUARDED_BY(mutex_);               // empty until `event` is called
  std::vector<bool> taken_ KOLO_GUARDED_BY(mutex_);            // in this iteration, by gradient
  std::size_t dense_ KOLO_GUARDED_BY(mutex_) = 0;              // number of dense buckets
  std::vector<Timeline::Span> spans_ KOLO_GUARDED_BY(mutex_);  // of dense buckets, this iteration
  std::vector<MarkCall> calls_ KOLO_GUARDED_BY(mutex_);        // in this iteration, by gradient
  /// Also by calls that wrote the gradient.
  std::vector<bool> marked_ KOLO_GUARDED_BY(mutex_);
  std::size_t marks_ KOLO_GUARDED_BY(mutex_) = 0;
  // Parts of all former iterations; `target_` adds those of the current one.
  std::size_t ended_ KOLO_GUARDED_BY(mutex_) = 0;
  std::size_t target_ KOLO_GUARDED_BY(mutex_) = 0;
  std::size_t until_vote_ KOLO_GUARDED_BY(mutex_) = 0;   // including this one; 0: no vote
  bool ends_with_vote_ KOLO_GUARDED_BY(mutex_) = false;  // this iteration
  StepTimes step_times_ KOLO_GUARDED_BY(mutex_);
  /// The time at which the call that marked the last gradient returned. The call's own time, in
  /// which it may have summed a bucket, does not count; only the first wait after it does.
  std::optional<TimePoint> went_on_ KOLO_GUARDED_BY(mutex_);
  WaitHabit habit_;
  std::optional<Error> error_ KOLO_GUARDED_BY(mutex_);  // constant once it has failed
  // Written under the lock, also read without it.
  std::atomic<std::size_t> enqueued_{0};  // parts, over all iterations
  std::atomic<std::size_t> finished_{0};
  std::atomic<bool> awaited_is_over_{false};
  std::atomic<int> running_{0};  // buckets that have started and are not over
  std::atomic<bool> has_failed_{false};
  std::atomic<int> waiters_{0};
};

}  // namespace kolo
