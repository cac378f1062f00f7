#pragma once

#include <sched.h>

#include <chrono>

#include "comm/base/clock.h"

namespace kolo {

/// How long a thread that has nothing to do looks again and again before it sleeps.
struct SpinBudget {
  Duration user{};    ///< A user's thread that waits.
  Duration engine{};  ///< The engine's thread, which takes its core from a computing thread.
  /// Gives the core away between two looks, because somebody else may need it.
  bool yields = false;
};

/// Passes the time between two looks, until it is used up.
class Patience {
 public:
  /// Something moved: the time begins anew at the next `pass`.
  void renew() { is_fresh_ = true; }

  /// Waits a moment. Returns false when `budget` is used up.
  bool pass(Duration budget, bool yields) {
    const TimePoint now = std::chrono::steady_clock::now();
    if (is_fresh_) {
      is_fresh_ = false;
      since_ = now;
    }
    if (now - since_ >= budget) return false;
    if (yields) {
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

  bool is_fresh_ = true;
  TimePoint since_{};
};

}  // namespace kolo
