#pragma once

#include <poll.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

#include "comm/base/clock.h"
#include "comm/base/error.h"
#include "comm/base/mutex.h"
#include "comm/base/unique_handle.h"
#include "comm/base/wait_policy.h"
#include "comm/network/out_of_band_abort.h"
#include "comm/transport/doorbell.h"
#include "comm/transport/transport.h"
#include "runtime/wait/progress_lock.h"
#include "runtime/wait/pulse.h"
#include "runtime/wait/user_threads.h"
#include "runtime/wait/wait_policy.h"

namespace kolo {

/// Threads that sleep until the driving thread completes their operations. If the driving thread is
/// given up, because it is stuck in a call, these threads wake and get an error.
///
/// Threads: any.
class AbortedWaiters {
 public:
  /// While it exists, the caller may wait for `changed` under `mutex`. The caller does not hold
  /// `mutex` when it is constructed or destroyed.
  class Place {
   public:
    Place(AbortedWaiters* all, Mutex& mutex, ConditionVariable& changed)
        : all_(all), mutex_(mutex), changed_(changed) {
      if (all_ != nullptr) all_->enter(*this);
    }
    ~Place() {
      if (all_ != nullptr) all_->leave(*this);
    }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;

    /// Returns true once the driving thread was given up and `changed` was notified.
    bool is_released() const { return all_ != nullptr && all_->is_released(); }

   private:
    friend class AbortedWaiters;

    AbortedWaiters* const all_;
    Mutex& mutex_;
    ConditionVariable& changed_;
  };

  /// Gives up the driving thread for good, with this error. The first error counts.
  void release(const Error& error) KOLO_EXCLUDES(mutex_);
  bool is_released() const { return is_released_.load(std::memory_order_acquire); }
  /// Throws the error if the driving thread was given up.
  void throw_if_released() const;

 private:
  void enter(Place& place) KOLO_EXCLUDES(mutex_);
  void leave(Place& place) KOLO_EXCLUDES(mutex_);

  Mutex mutex_;
  std::vector<Place*> places_ KOLO_GUARDED_BY(mutex_);
  std::optional<Error> error_;  // constant once it is released
  std::atomic<bool> is_released_{false};
};

/// The deadline of a wait. The time starts at the first call of `get`, after some polls without
/// success. Most waits end before that, and so never read the clock.
class Deadline {
 public:
  /// A timeout of 0 means no deadline.
  explicit Deadline(std::chrono::milliseconds timeout) : timeout_(timeout) {}
  /// The time starts at `begin`.
  Deadline(std::chrono::milliseconds timeout, TimePoint begin) : timeout_(timeout) {
    begin_at(begin);
  }

  TimePoint get() {
    if (!end_) begin_at(std::chrono::steady_clock::now());
    return *end_;
  }

 private:
  void begin_at(TimePoint begin) {
    end_ = timeout_.count() == 0 ? TimePoint::max() : later(begin, saturated(timeout_));
  }

  std::chrono::milliseconds timeout_;
  std::optional<TimePoint> end_ = {};
};

/// The interface of the engines of a rank for the driving thread.
/// Threads: the driving thread's; any for `has_submissions`.
class Pollable {
 public:
  virtual ~Pollable() = default;

  /// Advances all work as far as possible, and never blocks. Returns whether anything advanced.
  virtual bool poll() noexcept = 0;
  /// Returns whether users' threads have submitted anything since the last poll.
  virtual bool has_submissions() const = 0;
  /// Returns whether nothing is in flight.
  virtual bool idle() const = 0;
  /// Returns whether a device is at work; devices do not wake the driving thread.
  virtual bool device_busy() const = 0;
  /// Leaves the job at once, with this error.
  virtual void abort(Error error) = 0;
  /// Ends the job with the current exception, which was thrown in `verb`.
  virtual void fail_with_exception(EngineVerb verb) noexcept = 0;
  /// Returns whether the job has ended.
  virtual bool ended() const = 0;
  /// Returns the object that receives the driving thread's current verb; may be null.
  virtual Pulse* pulse() const = 0;
};

/// Decides which thread drives the engines of a rank: a thread that waits polls the engine itself.
/// The engine's own thread (`EngineThread`) does so only if no thread waits and there is work. So a
/// blocking call needs no switch between threads and, if ranks fit the cores, no system call.
///
///   the engine's thread    sleeps                                until
///   watching               on all descriptors of the transport   news, or a call; without a limit
///                                                                if the engine is idle
///   standing by            on its own doorbell, so that network  a call, or the end of
///                          data wakes only the holder            `kStandByTime`
///   driving                -                                     nothing advances, or a user's
///                                                                thread wants the lock
///
/// The engine's thread stands by while a user's thread has the lock, and watches again once no
/// thread has driven for `kStandByTime`, so leaving the lock costs users' threads nothing. A user's
/// thread that leaves unfinished work arms the transport again if the engine's thread watches, and
/// calls that thread otherwise.
///
/// Threads: any for `drive` and `attend`; `run` is the engine's thread.
/// Errors:  an exception of the engine or the transport ends the job and frees the lock.
class ProgressEngine {
 public:
  /// The next call that the caller of `attend` will make.
  enum class Next : std::uint8_t { kUnknown, kDrive };

  /// `transport` is the job's; `threads` are the threads that call `drive` and `attend`. Errors
  /// that arrive at `listener`, which may be null, end the job.
  ProgressEngine(Pollable& engines, Transport& transport, const WaitPolicy& policy,
                 UserThreads threads = {}, OutOfBandAbort* listener = nullptr);

  /// Drives the engines until `settled()` returns true; called by a thread that waits. Returns
  /// earlier if another user's thread drives, after `deadline`, and when the engine has ended.
  template <typename Settled>
  void drive(const Settled& settled, Deadline& deadline) {
    threads_.enter();
    if (settled()) return;
    threads_.check_process();
    if (!acquire()) return;
    const ProgressLockHolder lock_holder(*this, Next::kUnknown);
    while (!settled() && go_on(deadline)) {
    }
  }

  /// Starts submitted work as far as possible, and leaves the rest to the background; called by a
  /// thread that has submitted work. If `next` is kDrive, the engine's thread is not called,
  /// because the caller will drive soon.
  void attend(Next next);

  /// Drives the engines while no other thread does, until the engine has ended.
  void run() noexcept;

  /// Gives up the driving thread, which is stuck: waiting threads get `error`. Threads: any.
  void give_up(const Error& error);
  AbortedWaiters& aborted_waiters() { return aborted_waiters_; }

  /// Returns the lock, for the watchdog.
  ProgressLock& progress_lock() { return progress_lock_; }

 private:
  /// Releases, at the end of the scope, the lock that a user's thread has taken.
  class ProgressLockHolder {
   public:
    ProgressLockHolder(ProgressEngine& progress_engine, Next next)
        : progress_engine_(progress_engine), next_(next) {}
    ~ProgressLockHolder() { progress_engine_.release(next_); }
    ProgressLockHolder(const ProgressLockHolder&) = delete;
    ProgressLockHolder& operator=(const ProgressLockHolder&) = delete;

   private:
    ProgressEngine& progress_engine_;
    const Next next_;
  };

  bool try_acquire();
  bool acquire();
  bool go_on(Deadline& deadline);
  void release(Next next) noexcept;
  void call_engine_thread(Doorbell::News why);
  enum class Rest : std::uint8_t { kWatched, kStandBy };
  Rest drive_for_all();
  bool arm(bool idle);
  void unarm();
  void watch(Duration limit);
  template <typename Call>
  void guard(const Call& call) noexcept;
  void answer_listener();

  Pollable& engines_;
  Transport& transport_;
  const WaitPolicy policy_;
  const UserThreads threads_;
  OutOfBandAbort* const listener_;
  ProgressLock progress_lock_;
  AbortedWaiters aborted_waiters_;

  // Used by the current driving thread.
  Spinner spinner_;
  std::atomic<std::uint64_t> drives_{0};  // by users' threads; written under the lock
  Duration watch_limit_{};                // of the current watch
  bool moved_ = false;                    // in the last poll
  bool has_polled_ = false;               // in `attend`, for a caller that waits next

  // The doorbell calls the engine's thread. `kDriveNow` overrides `kStandBy`.
  static constexpr Doorbell::News kStandBy = Doorbell::News::kSignal;
  static constexpr Doorbell::News kDriveNow = Doorbell::News::kUrgent;
  Doorbell call_;
  FileDescriptor call_fd_;
  std::vector<pollfd> watched_;  // of the doorbell, transport and listener
};

/// The thread that drives the engines while no user's thread does; see `ProgressEngine`.
class EngineThread {
 public:
  explicit EngineThread(ProgressEngine& progress_engine);
  /// Waits for the engine to end.
  ~EngineThread();
  EngineThread(const EngineThread&) = delete;
  EngineThread& operator=(const EngineThread&) = delete;

 private:
  std::thread thread_;
};

/// While it exists, the caller's thread counts as waiting.
class Waiting {
 public:
  explicit Waiting(std::atomic<int>& waiters) : waiters_(waiters) { ++waiters_; }
  ~Waiting() { --waiters_; }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  std::atomic<int>& waiters_;
};

/// Waits until `settled()` returns true. Drives the engines if `progress_engine` is not null and no
/// other thread drives; otherwise sleeps until the driving thread notifies `changed`. Returns false
/// if `deadline` passes first; throws if the driving thread is given up.
///
/// Precondition: `settled` may be called without the mutex; its result changes only under the
///               mutex.
template <typename Settled>
bool wait_until(Deadline deadline, ProgressEngine* progress_engine, const Settled& settled,
                Mutex& mutex, ConditionVariable& changed) {
  if (progress_engine != nullptr) progress_engine->drive(settled, deadline);
  if (settled()) return true;
  AbortedWaiters* const aborted_waiters =
      progress_engine != nullptr ? &progress_engine->aborted_waiters() : nullptr;
  const AbortedWaiters::Place place(aborted_waiters, mutex, changed);
  const auto is_over = [&] { return settled() || place.is_released(); };
  {
    MutexLock lock(mutex);
    if (deadline.get() == TimePoint::max()) {
      changed.wait(lock, is_over);
    } else {
      changed.wait_until(lock, deadline.get(), is_over);
    }
  }
  if (settled()) return true;
  if (aborted_waiters != nullptr) aborted_waiters->throw_if_released();
  return false;
}

}  // namespace kolo
