#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>

#include "comm/base/clock.h"
#include "comm/base/wait_policy.h"
#include "runtime/wait/core_use.h"

namespace kolo {

/// The most that a sleep costs: falling asleep and waking up. On a flag in shared memory it is
/// about 5 us; if a network is waited for, too, descriptors are armed and drained, which takes up
/// to 100 us. A documented default: it decides how long threads poll, never a result.
inline constexpr std::chrono::microseconds kSleepCost{100};

/// Chooses how the threads of a rank wait.
///
///   threads of all ranks    a user's thread polls for    and keeps its core for
///   fit the cores           4 kSleepCost                 kKeepCore
///   outnumber the cores     kSleepCost                   0: it yields after each poll
///
/// If the threads fit, polling takes a core from no other thread, and a needless sleep adds at most
/// a quarter to the wait. If they do not, a thread that has polled for as long as a sleep costs has
/// lost at most as much as by sleeping at once. Background threads poll as long as users' threads
/// if a core is left for the engine's thread of each rank, else they sleep at once.
///
/// `granted` is the quota of the node in cores. `spin`, if it is not negative, replaces the time
/// that threads poll. `reduce_threads` help each rank. Pure.
WaitPolicy choose_wait_policy(const CoreSharers& sharers, std::size_t granted,
                              std::chrono::microseconds spin, int reduce_threads = 0);

/// The longest sleep of a driving thread: the coordinator's clock and the peers' sockets must be
/// polled regularly.
inline constexpr Duration kPendingSleep = std::chrono::milliseconds(50);

/// How long the engine's thread stands by while users' threads drive the engine. Only the end of
/// this time shows that no thread drives any more. It takes about 10 us of a core from a user's
/// thread: a thousandth, with 10 ms.
inline constexpr std::chrono::milliseconds kStandByTime{10};

/// Predicts whether a program waits for its work as soon as it has begun it: it does if it did so
/// the last time. Then the waiting thread will drive the work, and no other thread need be called.
/// A wrong prediction costs time, up to `kStandByTime` once, never a result. Threads: any.
class WaitHabit {
 public:
  bool expects_wait() const { return is_prompt_.load(std::memory_order_relaxed); }
  /// The wait began this long after the work.
  void waits(Duration after) {
    const bool now = after < kHandOver;
    if (expects_wait() != now) is_prompt_.store(now, std::memory_order_relaxed);
  }

 private:
  /// Handing work to another thread takes 5 to 20 us, so an earlier wait finds the work undone.
  static constexpr std::chrono::microseconds kHandOver{20};

  std::atomic<bool> is_prompt_{false};
};

}  // namespace kolo
