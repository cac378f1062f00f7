#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <thread>

#include "comm/base/clock.h"
#include "comm/base/mutex.h"
#include "comm/coordinator/last_activity.h"
#include "runtime/options/options.h"
#include "runtime/wait/progress_lock.h"
#include "runtime/wait/pulse.h"
#include "runtime/wait/wait_policy.h"

namespace kolo {

/// Decides from regular looks at the pulse of the driving thread whether that thread is stuck in a
/// call: it is stuck if it has the lock and its pulse does not change. Pure.
///
///   look            news
///   kStuck          it has been stuck for `warn_after`, and again each time this time has doubled
///   kGiveUp         it has been stuck for `give_up_after`; reported once
///   kMovesAgain     it advances again or has left the lock, after kStuck or kGiveUp
///
/// A look adds at most two intervals to the measured time, so a stop of the whole process hardly
/// counts. The measured time is a lower bound.
class StallJudge {
 public:
  struct Limits {
    Duration warn_after = Duration::max();     ///< The maximum means never.
    Duration give_up_after = Duration::max();  ///< The maximum means never.
  };
  enum class News : std::uint8_t { kNone, kStuck, kGiveUp, kMovesAgain };
  struct Verdict {
    News news = News::kNone;
    EngineVerb verb = EngineVerb::kMark;  ///< The verb in which the thread is or was stuck.
    Duration stuck_for{};                 ///< Lower bound of the time.
  };

  explicit StallJudge(const Limits& limits)
      : limits_(limits), interval_(interval(limits)), next_warning_(limits.warn_after) {}

  /// Time between two looks: an eighth of the time to the first warning. The warning is at most a
  /// quarter of that time late, because the thread may get stuck right after a look.
  Duration interval() const { return interval_; }

  /// Takes one look at time `now`. `is_driven` is true if a thread has the lock.
  Verdict look(bool is_driven, const Pulse::Reading& pulse, TimePoint now);

 private:
  static constexpr int kLooksToWarning = 8;

  static Duration interval(const Limits& limits) {
    return std::max(std::min(limits.warn_after, limits.give_up_after) / kLooksToWarning,
                    Duration(std::chrono::milliseconds(1)));
  }

  void begin(const std::optional<Pulse::Reading>& pulse);

  const Limits limits_;
  const Duration interval_;
  std::optional<Pulse::Reading> last_;  // empty if no thread drove
  TimePoint last_look_{};
  Duration stuck_for_{};
  Duration next_warning_;
  bool has_spoken_ = false;  // reported since it got stuck
  bool has_given_up_ = false;
};

/// A thread that reports when the driving thread of this rank does not return from a call to a
/// driver, a library, an allocator or the kernel. The rank then does not answer its peers, and no
/// other thread could say why. The watchdog cannot end the call; after a limit it gives up the
/// driving thread, so that other threads need not wait for it.
///
/// While a thread drives, the watchdog looks at its pulse a few times before a warning is due.
/// Otherwise it sleeps, so in an idle rank no thread wakes.
/// Short log lines need no heap memory, because the driving thread may be stuck in the allocator.
class Watchdog {
 public:
  /// Actions of the watchdog, called by its thread.
  struct Duties {
    /// Logs a warning; empty if there are no warnings.
    std::function<void(std::string_view line)> warn = {};
    /// Tells peers that the engine is stuck in `verb`; if that is empty, that it advances again.
    std::function<void(std::string_view verb)> note_stuck = {};
    /// Gives up the driving thread; called at most once.
    std::function<void(const StallJudge::Verdict& verdict)> give_up = {};
  };

  /// All arguments must outlive this object. `acts` are the acts of the job's engine.
  Watchdog(ProgressLock& progress_lock, const Pulse& pulse, const LastActivity& acts,
           const StallJudge::Limits& limits, Duties duties);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Returns the limits of the judge. The warning comes after `stall_warn`, at the latest after
  /// half of `peer_timeout`, before peers lose the rank, but not before a thread that only sleeps
  /// must have returned. The thread is given up after `stall_limit`, but not before the warning. If
  /// `stall_warn` is 0, peers still learn that it is stuck. Pure.
  static StallJudge::Limits limits(const Options& options, Duration stall_limit) {
    const Duration half = saturated(options.peer_timeout) / 2;
    const Duration warn_after =
        options.stall_warn.count() == 0 ? half : std::min(saturated(options.stall_warn), half);
    const Duration late = std::max(warn_after, 10 * kPendingSleep);
    return {.warn_after = late, .give_up_after = std::max(stall_limit, late)};
  }

 private:
  void run();
  void look();
  void warn(const StallJudge::Verdict& verdict) const;
  bool sleep();

  ProgressLock& progress_lock_;
  const Pulse& pulse_;
  const LastActivity& acts_;
  const Duties duties_;
  StallJudge judge_;
  Mutex mutex_;
  ConditionVariable ends_;
  std::atomic<bool> is_over_{false};  // set under the mutex
  std::thread thread_;
};

}  // namespace kolo
