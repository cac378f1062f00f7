#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <utility>

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

/// Whether a user's thread that has marked its last gradient is about to wait: it is if it did so
/// at once in the last iteration. Then it will drive the engine itself, and the engine's thread
/// need not be called. Threads: one at a time.
class PromptWaits {
 public:
  /// The call that marked the last gradient returns. Its own time does not count: it may have
  /// summed a bucket.
  void goes_on(TimePoint now) { went_on_ = now; }
  /// The thread waits. Only the first wait after `goes_on` counts.
  void waits(TimePoint now) {
    if (const auto since = std::exchange(went_on_, std::nullopt)) {
      expected_ = now - *since < kHandOver;
    }
  }

  bool expected() const { return expected_; }

 private:
  /// To hand work to another thread takes 5 to 20 us, so a wait that comes sooner finds it undone.
  static constexpr std::chrono::microseconds kHandOver{20};

  std::optional<TimePoint> went_on_;
  bool expected_ = false;
};

}  // namespace kolo
