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

/// The call by which the user marked a gradient.
enum class MarkCall : std::uint8_t { kNone, kReady, kAbsent };

/// The iterations of a gradient set. The user's threads mark gradients and wait; the engine's
/// thread counts the finished parts of an iteration: its buckets, and a vote if the iteration has
/// one.
///
/// Thread-safe; each section names the threads that call its functions.
class GradientIterations {
 public:
  /// All arguments belong to the set and must outlive this object. The user marks the first `size`
  /// gradients; further gradients hold the weights of ranks.
  GradientIterations(const std::string& name, const std::vector<GradientSpec>& gradients,
                     std::size_t size, CompressedSet& compressed, GradientEvents& events);

  // --- The user's threads ---------------------------------------------------------------------

  /// A bucket whose gradients are all marked.
  struct ReadyBucket {
    std::size_t index = 0;
    /// True if all gradients of the iteration are marked; the caller must then call `end_marking`.
    bool is_last = false;
    /// True if in earlier iterations `wait` followed at once.
    bool expects_wait = false;
  };
  /// Marks a gradient. Returns its bucket if no gradient of the bucket is unmarked any more.
  /// Errors: UsageError if the gradient is already marked; the error of a failed set.
  std::optional<ReadyBucket> mark(std::size_t gradient) KOLO_EXCLUDES(mutex_);
  /// Works like `mark`, for device memory that is complete after the work enqueued on the stream.
  std::optional<ReadyBucket> mark(std::size_t gradient, NativeStream stream);
  /// `mark` in two steps: `claim` checks, the caller writes the gradient, `mark_claimed` marks it.
  void claim(std::size_t gradient, MarkCall call) KOLO_EXCLUDES(mutex_);
  std::optional<ReadyBucket> mark_claimed(std::size_t gradient) KOLO_EXCLUDES(mutex_);
  /// Marks the weights, if there are any and all gradients are marked. Errors: as `mark`.
  std::optional<ReadyBucket> mark_weights() KOLO_EXCLUDES(mutex_);
  /// Called at the end of the user's call that marked the last gradient.
  void end_marking() KOLO_EXCLUDES(mutex_);
  /// See `GradientSet::wait`, without the division by weights. If `progress_engine` is not null,
  /// the caller's thread may poll the engine while it waits. Returns false on timeout.
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
  /// Waits until earlier iterations are over; `wait` on a stream may have returned before that.
  /// Returns false if gradients of the current iteration are marked, if the set has failed, and on
  /// timeout.
  bool finish(std::chrono::milliseconds timeout, ProgressEngine* progress_engine)
      KOLO_EXCLUDES(mutex_);
  /// Waits until a failing set has failed and none of its buckets runs. Returns false on timeout.
  bool await_stop(std::chrono::milliseconds timeout, ProgressEngine* progress_engine)
      KOLO_EXCLUDES(mutex_);
  /// Waits until no bucket runs and this rank does not stand in. Returns false on timeout.
  bool await_rest(std::chrono::milliseconds timeout, ProgressEngine* progress_engine)
      KOLO_EXCLUDES(mutex_);
  /// Returns whether `wait` on a stream would return at once.
  bool all_enqueued() const KOLO_EXCLUDES(mutex_);

  /// Throws UsageError unless a gradient has this index.
  void check_index(std::size_t gradient) const;

  // --- Any thread -----------------------------------------------------------------------------

  /// Returns whether gradients of the current iteration are marked, or an earlier iteration is not
  /// over. Returns false once the set has failed.
  bool in_flight() const KOLO_EXCLUDES(mutex_);
  /// Returns whether the memory of gradients may still be in use: by an iteration in flight, by a
  /// bucket that still runs after the set has failed, or because this rank, having joined, stands
  /// in.
  bool uses_memory() const { return in_flight() || running_ > 0; }
  /// Returns the gradients of this iteration that are not marked.
  std::vector<std::size_t> unmarked() const KOLO_EXCLUDES(mutex_);
  /// Returns the names of gradients, for an error text.
  std::string names_of(const std::vector<std::size_t>& gradients) const;
  /// Returns whether the set has an error, which every later call throws.
  bool failed() const { return has_failed_.load(std::memory_order_acquire); }
  /// Returns the number of threads that wait.
  int waiters() const { return waiters_; }
  /// Returns whether all gradients are marked and the program waits for them through `event`.
  bool is_watched() const KOLO_EXCLUDES(mutex_);

  // --- The engine's thread --------------------------------------------------------------------

  /// Makes the set write its iterations to `timeline`. Call it before the first iteration.
  void write_to(std::shared_ptr<Timeline> timeline) { timeline_ = std::move(timeline); }
  /// Sets the buckets: the dense ones, followed by the compressed ones. Called between iterations,
  /// or as the last part of an iteration.
  void plan(Plan dense) KOLO_EXCLUDES(mutex_);
  /// Begins the first iteration of a set without a vote.
  void begin() KOLO_EXCLUDES(mutex_);
  /// Begins the first of `kMeasuredIterations` iterations. They are timed by `clock`, which must
  /// outlive them, and the last one ends with a vote.
  void begin_measured(const Clock& clock) KOLO_EXCLUDES(mutex_);
  /// Ends timing and returns the times of the measured iterations.
  DenseSteps take_dense_steps() KOLO_EXCLUDES(mutex_);

  void bucket_started(std::size_t index) KOLO_EXCLUDES(mutex_);
  void bucket_enqueued() KOLO_EXCLUDES(mutex_);
  /// Counts a finished bucket. Returns true if the vote of the iteration is all that remains.
  bool bucket_finished(std::size_t index) KOLO_EXCLUDES(mutex_);
  void bucket_abandoned() KOLO_EXCLUDES(mutex_);
  /// This rank, having joined, runs an iteration without data from the first to the second call.
  void stand_in_began() { ++running_; }
  void stand_in_ended() KOLO_EXCLUDES(mutex_) { bucket_abandoned(); }
  /// Called when the engine has ended, so that no bucket runs.
  void stop() noexcept KOLO_EXCLUDES(mutex_);
  /// Starts timing the wait before `wait` is called.
  void begin_wait() KOLO_EXCLUDES(mutex_);
  /// Returns whether `wait` would return at once.
  bool is_over() const KOLO_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return finished_ >= target_;
  }
  /// Returns whether gradients are marked in an iteration that no `wait` has completed.
  bool is_marked() const KOLO_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return !error_ && marks_ > 0;
  }
  /// Forbids marks until `resume`, because a later set of this name is proposed. Returns false, and
  /// changes nothing, in the middle of an iteration.
  bool suspend() KOLO_EXCLUDES(mutex_);
  void resume() KOLO_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    is_suspended_ = false;
  }
  /// Called when the vote is decided and its result planned. Counts the vote as over.
  void vote_ended() KOLO_EXCLUDES(mutex_);
  /// Fails the current iteration and every later call. The first error counts.
  void fail(const Error& error) noexcept KOLO_EXCLUDES(mutex_);

 private:
  /// Waits until `progress` has counted the parts of this iteration, then ends it.
  bool wait_until_all(const std::atomic<std::size_t>& progress, std::chrono::milliseconds timeout,
                      ProgressEngine* progress_engine) KOLO_EXCLUDES(mutex_);
  /// Returns whether the buckets of the gradient and of the weights are over in this iteration.
  bool is_combined(std::size_t gradient) const KOLO_REQUIRES(mutex_);
  /// Called before a thread waits. Throws UsageError if gradients are not marked.
  void begin_waiting(TimePoint now) KOLO_REQUIRES(mutex_);
  void take(std::size_t gradient, MarkCall call) KOLO_REQUIRES(mutex_);
  std::optional<ReadyBucket> count(std::size_t gradient) KOLO_REQUIRES(mutex_);
  void begin_next() KOLO_REQUIRES(mutex_);
  std::vector<std::size_t> find_unmarked() const KOLO_REQUIRES(mutex_);
  /// Writes the iteration that is over to the timeline; `waited` is the time of its `wait`.
  void write(const std::vector<CompressionStats>& groups, const Timeline::Span& waited) const
      KOLO_REQUIRES(mutex_);

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
  /// Number of finished iterations, by bucket.
  std::vector<std::size_t> ends_ KOLO_GUARDED_BY(mutex_);
  /// Gradient of the current `wait_for`.
  std::optional<std::size_t> awaited_ KOLO_GUARDED_BY(mutex_);
  FileDescriptor event_ KOLO_GUARDED_BY(mutex_);               // empty until `event` is called
  std::vector<bool> taken_ KOLO_GUARDED_BY(mutex_);            // in this iteration, by gradient
  std::size_t dense_ KOLO_GUARDED_BY(mutex_) = 0;              // number of dense buckets
  std::vector<Timeline::Span> spans_ KOLO_GUARDED_BY(mutex_);  // of dense buckets, this iteration
  std::vector<MarkCall> calls_ KOLO_GUARDED_BY(mutex_);        // in this iteration, by gradient
  /// By gradient. A gradient's entry in `calls_` is set by `claim`, and in `marked_` when it is
  /// marked.
  std::vector<bool> marked_ KOLO_GUARDED_BY(mutex_);
  std::size_t marks_ KOLO_GUARDED_BY(mutex_) = 0;
  bool is_suspended_ KOLO_GUARDED_BY(mutex_) = false;
  // `ended_`: parts of all earlier iterations. `target_` adds the parts of the current one.
  std::size_t ended_ KOLO_GUARDED_BY(mutex_) = 0;
  std::size_t target_ KOLO_GUARDED_BY(mutex_) = 0;
  std::size_t until_vote_ KOLO_GUARDED_BY(mutex_) = 0;   // iterations until then; 0: no vote
  bool ends_with_vote_ KOLO_GUARDED_BY(mutex_) = false;  // this iteration
  StepTimes step_times_ KOLO_GUARDED_BY(mutex_);
  /// Time at which the call that marked the last gradient returned; empty after the first wait.
  /// `habit_` counts from this time, because that call may have summed a bucket.
  std::optional<TimePoint> went_on_ KOLO_GUARDED_BY(mutex_);
  WaitHabit habit_;
  std::optional<Error> error_ KOLO_GUARDED_BY(mutex_);  // constant once it has failed
  // Written under the lock, also read without it.
  std::atomic<std::size_t> enqueued_{0};  // parts, over all iterations
  std::atomic<std::size_t> finished_{0};
  std::atomic<bool> awaited_is_over_{false};
  std::atomic<int> running_{0};  // buckets that have started and are not over, and stand-ins
  std::atomic<bool> has_failed_{false};
  std::atomic<int> waiters_{0};
};

}  // namespace kolo
