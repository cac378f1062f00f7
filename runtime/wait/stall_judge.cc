#include "runtime/wait/stall_judge.h"

namespace kolo {

StallJudge::Verdict StallJudge::look(bool is_driven, const Pulse::Reading& pulse, TimePoint now) {
  const Duration passed = std::min(now - last_look_, 2 * interval_);
  last_look_ = now;
  if (!is_driven || last_ != pulse) {
    Verdict verdict;
    if (has_spoken_) {
      verdict = {.news = News::kMovesAgain, .verb = last_->verb, .stuck_for = stuck_for_};
    }
    begin(is_driven ? std::make_optional(pulse) : std::nullopt);
    return verdict;
  }
  stuck_for_ += passed;
  Verdict verdict{.news = News::kNone, .verb = pulse.verb, .stuck_for = stuck_for_};
  if (stuck_for_ >= next_warning_) {
    verdict.news = News::kStuck;
    while (next_warning_ <= stuck_for_) next_warning_ *= 2;
  }
  if (stuck_for_ >= limits_.give_up_after && !has_given_up_) {
    verdict.news = News::kGiveUp;
    has_given_up_ = true;
  }
  has_spoken_ |= verdict.news != News::kNone;
  return verdict;
}

void StallJudge::begin(const std::optional<Pulse::Reading>& pulse) {
  last_ = pulse;
  stuck_for_ = {};
  next_warning_ = limits_.warn_after;
  has_spoken_ = false;
}

}  // namespace kolo
