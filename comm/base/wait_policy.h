#pragma once

#include <sched.h>

#include <algorithm>
#include <chrono>

#include "comm/base/clock.h"

namespace kolo {

/// How long a thread without work polls before it sleeps until it is woken:
///
///   | polls and keeps its core | polls and yields its core between polls | sleeps
///   0                      keep_core                                   spin
///
/// `runtime/wait/wait_policy.h` chooses the times. By default every thread sleeps at once.
struct WaitPolicy {
  Duration spin{};  ///< Time that a waiting user thread polls.
  /// Time that background threads poll: the engine's thread, threads that help with reductions, and
  /// a driving thread that waits for helpers.
  Duration background_spin{};
  Duration keep_core{};
};

/// Counts the polls of one wait.
class Spinner {
 public:
  /// Restarts the time after progress was made.
  void renew() { polls_ = 0; }

  /// Pauses between two polls. Returns false once `spin` has passed. The clock starts at the second
  /// poll, because reading it costs as much as a poll and the first poll often suffices.
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
