#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>

#include "comm/base/clock.h"
#include "comm/base/wait_policy.h"
#include "runtime/wait/core_use.h"

namespace kolo {

/// The cost of a sleep: falling asleep and waking up again, at most. On a flag of shared memory it
/// is some 5 us; where a network is waited for, too, descriptors are armed and drained, and it is
/// up to 100 us. A documented default: it decides how long threads poll, never what they compute.
inline constexpr std::chrono::microseconds kSleepCost{100};

/// Chooses how the threads of a rank wait.
///
///   threads of all ranks    a user's thread polls for    and keeps its core for
///   fit the cores           4 kSleepCost                 kKeepCore
///   outnumber the cores     kSleepCost                   0: it yields after each poll
///
/// Where threads fit, polling takes a core from nobody, and a sleep that was not worth it adds at
/// most a quarter to the wait. Where they do not, a thread that has polled for as long as a sleep
/// costs has lost at most as much as by sleeping at once. Background threads poll as long as users'
/// if a core is left for the engine's thread of each rank, else they sleep at once.
///
/// `granted` is the quota of the node in cores. `spin`, if it is not negative, replaces the time
/// that threads poll. `reduce_threads` help each rank. Pure.
WaitPolicy choose_wait_policy(const CoreSharers& sharers, std::size_t granted,
                              std::chrono::microseconds spin, int reduce_threads = 0);

/// The longest sleep of a driver: the coordinator's clock and the peers' sockets must be polled now
/// and then.
inline constexpr Duration kPendingSleep = std::chrono::milliseconds(50);

/// The engine's thread stands by for this long while users' threads drive the engine. Only the end
/// of that time shows that nobody drives any more, and it takes a core from a user's thread for
/// some 10 us: one in a thousand, if it is 10 ms.
inline constexpr std::chrono::milliseconds kStandByTime{10};

/// Whether a program waits for its work as soon as it has begun it: it does if it did so the last
/// time. Then the thread that waits will drive the work, and no other one need be called for it. A
/// wrong guess costs time, up to `kStandByTime` once, never a result. Threads: any.
class WaitHabit {
 public:
  bool expects_wait() const { return is_prompt_.load(std::memory_order_relaxed); }
  /// The wait has begun so long after the work.
  void waits(Duration after) {
    const bool now = after < kHandOver;
    if (expects_wait() != now) is_prompt_.store(now, std::memory_order_relaxed);
  }

 private:
  /// To hand work to another thread takes 5 to 20 us, so a wait that comes sooner finds it undone.
  static constexpr std::chrono::microseconds kHandOver{20};

  std::atomic<bool> is_prompt_{false};
};

}  // namespace kolo
