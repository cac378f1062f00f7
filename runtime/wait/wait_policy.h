#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>

#include "comm/base/clock.h"
#include "comm/base/wait_policy.h"
#include "runtime/wait/core_use.h"

namespace kolo {

/// Highest cost of a sleep: falling asleep and waking up. On a flag in shared memory it is about 5
/// us. With a network, descriptors are armed and drained, which takes up to 100 us. A documented
/// default: it decides how long threads poll, and no result depends on it.
inline constexpr std::chrono::microseconds kSleepCost{100};

/// Chooses how the threads of a rank wait.
///
///   threads of all ranks    a user's thread polls for    and keeps its core for
///   fit the cores           4 kSleepCost                 kKeepCore
///   outnumber the cores     kSleepCost                   0: it yields after each poll
///
/// If the threads fit, polling takes a core from no other thread, and a needless sleep adds at most
/// a quarter to the wait. If threads outnumber the cores, a thread that polls for as long as a
/// sleep costs wastes at most the cost of one sleep. Background threads poll as long as users'
/// threads if there is a core for the engine's thread of each rank; otherwise they sleep at once.
///
/// `granted` is the quota of the node in cores. `spin`, if it is not negative, replaces the time
/// that threads poll. `reduce_threads` is the number of helper threads of each rank. Pure.
WaitPolicy choose_wait_policy(const CoreSharers& sharers, std::size_t granted,
                              std::chrono::microseconds spin, int reduce_threads = 0);

/// Longest sleep of a driving thread, which must regularly poll the clock and peers' sockets.
inline constexpr Duration kPendingSleep = std::chrono::milliseconds(50);

/// Time for which the engine's thread stands by, without looking whether users' threads still drive
/// the engine. Each look takes about 10 us of a core, a thousandth of 10 ms.
inline constexpr std::chrono::milliseconds kStandByTime{10};

/// Predicts that a program waits for an operation right after it has begun it if it did so the last
/// time. The waiting thread then drives the operation, and no other thread need be called. A wrong
/// prediction costs up to `kStandByTime` once, and changes no result. Threads: any.
class WaitHabit {
 public:
  bool expects_wait() const { return is_prompt_.load(std::memory_order_relaxed); }
  /// Records a wait; `after` is the time from the begin of the operation to the begin of the wait.
  void waits(Duration after) {
    const bool now = after < kHandOver;
    if (expects_wait() != now) is_prompt_.store(now, std::memory_order_relaxed);
  }

 private:
  /// Passing work to another thread takes 5 to 20 us. A wait that begins earlier finds it not
  /// begun.
  static constexpr std::chrono::microseconds kHandOver{20};

  std::atomic<bool> is_prompt_{false};
};

}  // namespace kolo
