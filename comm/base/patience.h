#pragma once

#include <sched.h>

#include <algorithm>
#include <chrono>

#include "comm/base/clock.h"

namespace kolo {

/// How long a thread that has nothing to do looks again and again before it sleeps.
struct SpinBudget {
  Duration user{};       ///< A user's thread that waits.
  Duration user_most{};  ///< The same where sleeps prove too short to be worth it; no less.
  Duration engine{};     ///< The engine's thread, which takes its core from a computing thread.
  Duration helper{};     ///< A thread that helps the driver with reductions, and the driver for it.
  /// So long it looks again at once. Later it gives the core away between two looks: somebody else
  /// may need it, if only because the kernel has put two ranks on one core.
  Duration keeps_core{};
};

/// Passes the time between two looks, until it is used up.
class Patience {
 public:
  /// Something moved: the time begins anew.
  void renew() { passes_ = 0; }

  /// Waits a moment. Returns false when `budget` is used up. The time begins with the second pass:
  /// a clock costs as much as a look, and the first is often enough.
  bool pass(Duration budget, Duration keeps_core) {
    Duration passed{};
    if (passes_ > 0) {
      const TimePoint now = std::chrono::steady_clock::now();
      if (passes_ == 1) since_ = now;
      passed = now - since_;
    }
    if (passed >= budget) return false;
    passes_ = std::min(passes_ + 1, 2);
    if (passed >= keeps_core) {
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

  int passes_ = 0;  // since the last renewal, at most 2
  TimePoint since_{};
};

}  // namespace kolo
