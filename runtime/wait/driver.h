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
#include "comm/network/error_door.h"
#include "comm/transport/doorbell.h"
#include "comm/transport/transport.h"
#include "runtime/wait/pulse.h"
#include "runtime/wait/seat.h"
#include "runtime/wait/user_threads.h"
#include "runtime/wait/wait_policy.h"

namespace kolo {

/// Threads that sleep until the driving thread has completed what they wait for. If the driver is
/// given up, they are woken with the error.
///
/// Threads: any.
class Bystanders {
 public:
  /// While it exists, the caller may wait for `changed` under `mutex`. The caller does not hold
  /// `mutex` when it is constructed or destroyed.
  class Place {
   public:
    Place(Bystanders* all, Mutex& mutex, ConditionVariable& changed)
        : all_(all), mutex_(mutex), changed_(changed) {
      if (all_ != nullptr) all_->enter(*this);
    }
    ~Place() {
      if (all_ != nullptr) all_->leave(*this);
    }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;

    /// The driver was given up, and `changed` was notified.
    bool is_released() const { return all_ != nullptr && all_->is_released(); }

   private:
    friend class Bystanders;

    Bystanders* const all_;
    Mutex& mutex_;
    ConditionVariable& changed_;
  };

  /// Gives up the driver for good, with this error. The first error counts.
  void release(const Error& error) KOLO_EXCLUDES(mutex_);
  bool is_released() const { return is_released_.load(std::memory_order_acquire); }
  /// Throws the error if the driver was given up.
  void throw_if_released() const;

 private:
  void enter(Place& place) KOLO_EXCLUDES(mutex_);
  void leave(Place& place) KOLO_EXCLUDES(mutex_);

  Mutex mutex_;
  std::vector<Place*> places_ KOLO_GUARDED_BY(mutex_);
  std::optional<Error> error_;  // constant once it is released
  std::atomic<bool> is_released_{false};
};

/// The deadline of a wait. The time starts at the first check, which is when a thread has polled
/// without success: most waits end before that, and need not read the clock.
class Deadline {
 public:
  /// 0: never.
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

/// What a driver drives: the engines of a rank.
///
/// Threads: the driver's; any for `has_submissions`.
class Pollable {
 public:
  virtual ~Pollable() = default;

  /// Advances all work as far as possible, and never blocks. Returns whether anything advanced.
  virtual bool poll() noexcept = 0;
  /// Whether users' threads have submitted anything since the last poll.
  virtual bool has_submissions() const = 0;
  /// Whether nothing is in flight.
  virtual bool idle() const = 0;
  /// Whether a device is at work; devices do not wake the driver.
  virtual bool device_busy() const = 0;
  /// Leaves the job at once, with this error.
  virtual void abort(Error error) = 0;
  /// Ends the job with the current exception, which was thrown in `verb`.
  virtual void fail_with_exception(EngineVerb verb) noexcept = 0;
  /// Whether the job has ended.
  virtual bool ended() const = 0;
  /// Receives the driver's current verb; may be null.
  virtual Pulse* pulse() const = 0;
};

/// Decides which thread drives the engines of a rank: a thread that waits polls the engine itself.
/// The engine's own thread (`EngineThread`) does so only if no thread waits and there is work. Then
/// a blocking call needs no switch between threads, and no system call while ranks fit the cores.
///
///   the engine's thread    sleeps                                until
///   watching               on all descriptors of the transport   news, or a call; without a limit
///                                                                if the engine is idle
///   standing by            on its own doorbell, so that network  a call, or the end of
///                          data wakes only the driver            `kStandByTime`
///   driving                -                                     nothing advances, or a user's
///                                                                thread wants the seat
///
/// It stands by while a user's thread has the seat, and watches again once no thread has driven for
/// `kStandByTime`, so users' threads leave the seat at no cost. A user's thread that leaves
/// unfinished work arms the transport again if the engine's thread watches, or else calls that
/// thread.
///
/// Threads: any for `drive` and `attend`; `run` is the engine's thread.
/// Errors:  an exception of the engine or the transport ends the job; the seat becomes free.
class Driver {
 public:
  /// What the caller of `attend` will call next.
  enum class Next : std::uint8_t { kUnknown, kDrive };

  /// `transport` is the job's; `threads` are the threads that call `drive` and `attend`. Errors
  /// that arrive at `door`, which may be null, end the job.
  Driver(Pollable& engines, Transport& transport, const WaitPolicy& policy,
         UserThreads threads = {}, ErrorDoor* door = nullptr);

  /// Drives until `settled()`, for a thread that waits. Returns before `settled()` if another
  /// user's thread drives, after `deadline`, and when the engine has ended.
  template <typename Settled>
  void drive(const Settled& settled, Deadline& deadline) {
    threads_.enter();
    if (settled()) return;
    threads_.check_process();
    if (!sit_down()) return;
    const Seated seated(*this, Next::kUnknown);
    while (!settled() && go_on(deadline)) {
    }
  }

  /// For a thread that has submitted work and does not wait: starts as much as it can, and leaves
  /// the rest to the background. `next` says whether the caller is about to drive: then the
  /// engine's thread need not be called until it stops standing by.
  void attend(Next next);

  /// Drives while no other thread does, until the engine has ended.
  void run() noexcept;

  /// The driving thread is stuck in a call: threads that wait for it get `error`. Threads: any.
  void give_up(const Error& error);
  Bystanders& bystanders() { return bystanders_; }

  /// For the watchdog.
  Seat& seat() { return seat_; }

 private:
  /// Leaves the seat at the end of the scope, for a user's thread that has taken it.
  class Seated {
   public:
    Seated(Driver& driver, Next next) : driver_(driver), next_(next) {}
    ~Seated() { driver_.get_up(next_); }
    Seated(const Seated&) = delete;
    Seated& operator=(const Seated&) = delete;

   private:
    Driver& driver_;
    const Next next_;
  };

  bool try_to_sit_down();
  bool sit_down();
  bool go_on(Deadline& deadline);
  void get_up(Next next) noexcept;
  void call_engine_thread(Doorbell::News why);
  enum class Rest : std::uint8_t { kWatched, kStandBy };
  Rest drive_for_all();
  bool arm(bool idle);
  void unarm();
  void watch(Duration limit);
  template <typename Call>
  void guard(const Call& call) noexcept;
  void answer_door();

  Pollable& engines_;
  Transport& transport_;
  const WaitPolicy policy_;
  const UserThreads threads_;
  ErrorDoor* const door_;
  Seat seat_;
  Bystanders bystanders_;

  // Used by the driving thread, whichever it is.
  Spinner spinner_;
  std::atomic<std::uint64_t> drives_{0};  // by users' threads; written by the driver
  Duration watch_limit_{};                // of the current watch
  bool moved_ = false;                    // in the last poll
  bool has_polled_ = false;               // for a caller that is about to wait

  // For calls to the engine's thread; a call to drive overrides one to stand by.
  static constexpr Doorbell::News kStandBy = Doorbell::News::kSignal;
  static constexpr Doorbell::News kDriveNow = Doorbell::News::kUrgent;
  Doorbell call_;
  FileDescriptor call_fd_;
  std::vector<pollfd> watched_;  // its doorbell, the transport's descriptors and the door's
};

/// The thread that drives an engine while no user's thread does; see `Driver`.
class EngineThread {
 public:
  explicit EngineThread(Driver& driver);
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

/// Waits until `settled()`: drives the engine if there is a driver and no other thread drives it,
/// or else sleeps until the driving thread notifies `changed`. Returns false if `deadline` passes
/// first; throws if the driving thread is given up.
///
/// Precondition: `settled` may be called without the mutex, and changes under it.
template <typename Settled>
bool wait_until(Deadline deadline, Driver* driver, const Settled& settled, Mutex& mutex,
                ConditionVariable& changed) {
  if (driver != nullptr) driver->drive(settled, deadline);
  if (settled()) return true;
  Bystanders* const bystanders = driver != nullptr ? &driver->bystanders() : nullptr;
  const Bystanders::Place place(bystanders, mutex, changed);
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
  if (bystanders != nullptr) bystanders->throw_if_released();
  return false;
}

}  // namespace kolo
