#pragma once

#include <sched.h>

#include <algorithm>
#include <chrono>

#include "comm/base/clock.h"

namespace kolo {

/// The times for which a thread without work polls before it sleeps until it is woken:
///
///   | polls and keeps its core | polls and yields its core between polls | sleeps
///   0                      keep_core                                   spin
///
/// `runtime/wait/wait_policy.h` chooses the times. With the defaults, threads sleep at once.
struct WaitPolicy {
  Duration spin{};  ///< Time for which a waiting user thread polls.
  /// Time for which background threads poll: the engine's thread, threads that help with
  /// reductions, and a driving thread that waits for such helpers.
  Duration background_spin{};
  Duration keep_core{};
};

/// Paces the polls of one wait.
class Spinner {
 public:
  /// Restarts the time. Called after progress.
  void renew() { polls_ = 0; }

  /// Pauses between two polls. Returns false once `spin` has passed, so that the caller sleeps. The
  /// time starts at the second call: reading the clock costs as much as a poll, and the first poll
  /// often suffices.
  bool pass(Duration spin, Duration keep_core) {
    Duration passed{};
    if (polls_ > 0) {
      const TimePoint now = std::chrono::steady_clock::now();
      if (polls_ == 1) since_ = now;
      passed = now - since_;
    }
    if (passed >= spin) return false;
    polls_ = std::min(polls_ + 1, 2);
    if (passed >= keep_core) {
      ::sched_yield();
    } else {
      relax();
    }
    return true;
  }

 private:
  static void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }

  int polls_ = 0;  // since the last renewal, at most 2
  TimePoint since_{};
};

}  // namespace kolo
