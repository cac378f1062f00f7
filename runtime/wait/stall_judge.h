#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

#include "comm/base/clock.h"
#include "runtime/wait/pulse.h"

namespace kolo {

/// Decides whether the thread that drives the engines is stuck inside a call, from looks at its
/// pulse: it is if it has the seat and its pulse does not change. Pure.
///
///   look            news
///   kStuck          it has been stuck for `warn_after`, and each time this time has doubled
///   kGiveUp         it has been stuck for `give_up_after`; once
///   kMovesAgain     it moves again, or has left, after one of these
///
/// Only the time in which the judge itself was asked counts: a look that comes late, because the
/// whole process was stopped, counts as one in time. What it calls the time stuck is therefore a
/// lower bound, short by one interval at most.
class StallJudge {
 public:
  struct Limits {
    Duration warn_after = Duration::max();     ///< The largest value: never.
    Duration give_up_after = Duration::max();  ///< The largest value: never.
  };
  enum class News : std::uint8_t { kNone, kStuck, kGiveUp, kMovesAgain };
  struct Verdict {
    News news = News::kNone;
    EngineVerb verb = EngineVerb::kMark;  ///< In which it is or was stuck.
    Duration stuck_for{};                 ///< At least.
  };

  explicit StallJudge(const Limits& limits)
      : limits_(limits), interval_(interval(limits)), next_warning_(limits.warn_after) {}

  /// How often to look: an eighth of the time to the first warning, which is therefore late by a
  /// quarter at most, as the thread may have got stuck right after a look.
  Duration interval() const { return interval_; }

  /// `is_driven`: somebody has the seat.
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
  std::optional<Pulse::Reading> last_;  // none: nobody drove
  TimePoint last_look_{};
  Duration stuck_for_{};
  Duration next_warning_;
  bool has_spoken_ = false;  // since it is stuck
  bool has_given_up_ = false;
};

}  // namespace kolo
