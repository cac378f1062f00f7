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

/// The threads that sleep until another thread, which drives the engines, has settled what they
/// wait for. If that one is given up, they are woken with the error why.
///
/// Threads: any.
class Bystanders {
 public:
  /// While it lives, the caller may wait for `changed` under `mutex`, which it does not hold when
  /// this begins and ends.
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

    /// The driver was given up: `changed` is notified of it.
    bool is_released() const { return all_ != nullptr && all_->is_released(); }

   private:
    friend class Bystanders;

    Bystanders* const all_;
    Mutex& mutex_;
    ConditionVariable& changed_;
  };

  /// Gives the driver up, for good. The first error counts.
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

/// The end of a wait. Its time begins at the first look at it, which is when a thread has polled in
/// vain: most waits end before, and save the time of reading the clock.
class Deadline {
 public:
  /// 0: never.
  explicit Deadline(std::chrono::milliseconds timeout) : timeout_(timeout) {}
  /// The time has begun.
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
/// Threads: the driver's, but for `has_submissions`, which any may ask.
class Pollable {
 public:
  virtual ~Pollable() = default;

  /// Moves whatever can be moved, and never blocks. Returns whether anything moved.
  virtual bool poll() noexcept = 0;
  /// Whether users' threads have submitted anything since the last poll.
  virtual bool has_submissions() const = 0;
  /// Whether nothing is in flight.
  virtual bool idle() const = 0;
  /// Whether a device works, which sends no wake-ups.
  virtual bool device_busy() const = 0;
  /// Leaves the job at once, with this error.
  virtual void abort(Error error) = 0;
  /// Ends the job with the error that is being handled, which was thrown in `verb`.
  virtual void fail_with_exception(EngineVerb verb) noexcept = 0;
  /// Whether the job has ended.
  virtual bool ended() const = 0;
  /// Shows the verb that the driver is in; null if nobody looks.
  virtual Pulse* pulse() const = 0;
};

/// Drives the engines of a rank by whoever has reason to: a thread that waits polls the engine
/// itself, and only when nobody waits and something is to be done does the engine's own thread
/// (`EngineThread`). Then a blocking call costs no switch between threads, and while ranks fit the
/// cores no system call.
///
///   the engine's thread    sleeps                                until
///   watching               on all descriptors of the transport   news, or a call; without a limit
///                                                                if the engine is idle
///   standing by            on its own doorbell, so that data     a call, or the end of
///                          of the network wake the driver only   `kStandByTime`
///   driving                -                                     nothing moves, or a user wants
///                                                                the seat
///
/// It stands by when it finds a user's thread in the seat, and watches again after a time of
/// standing by in which nobody drove: leaving costs users nothing. A user's thread that leaves with
/// work under way arms the transport again if the engine's thread watches, or else calls it.
///
/// Threads: any for `drive` and `attend`; `run` is the engine's thread.
/// Errors:  whatever the engine or the transport throws ends the job; the seat becomes free.
class Driver {
 public:
  /// The next call of the caller of `attend`.
  enum class Next : std::uint8_t { kUnknown, kDrive };

  /// `transport` is the job's; `threads` are those that call `drive` and `attend`. Errors that come
  /// by `door`, if there is one, end the job.
  Driver(Pollable& engines, Transport& transport, const WaitPolicy& policy,
         UserThreads threads = {}, ErrorDoor* door = nullptr);

  /// For a thread that waits: drives until `settled()`. Returns earlier, with `settled()` still
  /// false, if another user's thread drives, after `deadline`, and when the engine has ended.
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

  /// For a thread that has submitted work and does not wait: starts what it can, and leaves the
  /// rest to the background. A caller that is about to drive says so: then a call of the engine's
  /// thread can wait until it no longer stands by.
  void attend(Next next);

  /// Drives when nobody else does, until the engine has ended.
  void run() noexcept;

  /// The thread that drives has not come back from a call for too long: threads that wait for it
  /// get `error`. Threads: any.
  void give_up(const Error& error);
  Bystanders& bystanders() { return bystanders_; }

  /// For the watchdog.
  Seat& seat() { return seat_; }

 private:
  /// A user's thread that has sat down gets up at the end of the scope.
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

  // The driver's, whoever it is.
  Spinner spinner_;
  std::atomic<std::uint64_t> drives_{0};  // by users' threads; the driver's to change
  Duration watch_limit_{};                // of the watch under way
  bool moved_ = false;                    // in the last poll
  bool has_polled_ = false;               // for a caller who is about to wait

  // The engine's thread and who calls it; a call to drive outdoes one to stand by.
  static constexpr Doorbell::News kStandBy = Doorbell::News::kSignal;
  static constexpr Doorbell::News kDriveNow = Doorbell::News::kUrgent;
  Doorbell call_;
  FileDescriptor call_fd_;
  std::vector<pollfd> watched_;  // that, the transport's descriptors and the door's
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

/// Counts the caller's thread among those that wait, while it lives.
class Waiting {
 public:
  explicit Waiting(std::atomic<int>& waiters) : waiters_(waiters) { ++waiters_; }
  ~Waiting() { --waiters_; }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  std::atomic<int>& waiters_;
};

/// Waits until `settled()`: by driving the engine if there is a driver and no other thread drives
/// it, or else until the thread that drives notifies `changed`. Returns false if `deadline` comes
/// first; throws if the thread that drives is given up.
///
/// Before: `settled` may be called without the mutex, and changes under it.
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
