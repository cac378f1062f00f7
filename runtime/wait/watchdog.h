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

/// Decides whether the thread that drives the engines is stuck inside a call, from regular looks at
/// its pulse: it is stuck if it has the lock and its pulse does not change. Pure.
///
///   look            news
///   kStuck          it has been stuck for `warn_after`, and each time this time has doubled
///   kGiveUp         it has been stuck for `give_up_after`; once
///   kMovesAgain     it advances again, or has left, after one of these
///
/// Time counts only up to one interval per look: if the whole process was stopped, the late look
/// counts as a timely one. The measured time is therefore a lower bound, at most one interval too
/// short.
class StallJudge {
 public:
  struct Limits {
    Duration warn_after = Duration::max();     ///< The maximum: never.
    Duration give_up_after = Duration::max();  ///< The maximum: never.
  };
  enum class News : std::uint8_t { kNone, kStuck, kGiveUp, kMovesAgain };
  struct Verdict {
    News news = News::kNone;
    EngineVerb verb = EngineVerb::kMark;  ///< The verb in which it is or was stuck.
    Duration stuck_for{};                 ///< At least this long.
  };

  explicit StallJudge(const Limits& limits)
      : limits_(limits), interval_(interval(limits)), next_warning_(limits.warn_after) {}

  /// How often to look: an eighth of the time to the first warning. The warning is at most a
  /// quarter late, since the thread may get stuck right after a look.
  Duration interval() const { return interval_; }

  /// `is_driven`: a thread has the lock.
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
  bool has_spoken_ = false;  // since it got stuck
  bool has_given_up_ = false;
};

/// A thread that reports on stderr when the thread that drives the engines of this rank does not
/// return from a call to a driver, a library, an allocator or the kernel. The rank then answers
/// none of its peers, and no other thread could say why. The watchdog cannot end the call; after a
/// limit it gives the thread up, so that others need not wait for it.
///
/// It looks at the driving thread's pulse a few times before a warning is due while a thread
/// drives, and sleeps while none does: an idle rank has no thread that wakes.
///
/// Short lines need no memory from the heap, because the allocator may be what is stuck.
class Watchdog {
 public:
  /// Actions of the watchdog, called by its thread.
  struct Duties {
    /// Empty: no warnings.
    std::function<void(std::string_view line)> warn = {};
    /// The engine is stuck in this verb; if empty, it advances again.
    std::function<void(std::string_view verb)> note_stuck = {};
    /// Called at most once.
    std::function<void(const StallJudge::Verdict& verdict)> give_up = {};
  };

  /// All arguments outlive it; `acts` are those of the job.
  Watchdog(ProgressLock& progress_lock, const Pulse& pulse, const LastActivity& acts,
           const StallJudge::Limits& limits, Duties duties);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// It warns after `stall_warn`, at the latest after half of `peer_timeout`, before peers lose the
  /// rank; and not before a merely sleeping thread must have returned. It gives up after
  /// `stall_limit`, and not before it has warned. If `stall_warn` is 0, it does not warn, but still
  /// notes for its peers that it is stuck. Pure.
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
