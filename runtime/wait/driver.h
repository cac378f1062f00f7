#pragma once

#include <poll.h>

#include <atomic>
#include <cstdint>
#include <vector>

#include "comm/base/clock.h"
#include "comm/base/unique_handle.h"
#include "comm/base/wait_policy.h"
#include "comm/network/error_door.h"
#include "comm/transport/doorbell.h"
#include "comm/transport/transport.h"
#include "runtime/wait/bystanders.h"
#include "runtime/wait/deadline.h"
#include "runtime/wait/pollable.h"
#include "runtime/wait/seat.h"
#include "runtime/wait/user_threads.h"
#include "runtime/wait/wait_policy.h"

namespace kolo {

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

}  // namespace kolo
