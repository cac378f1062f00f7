#include "runtime/wait/watchdog.h"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace kolo {
namespace {

double seconds(Duration time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

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

Watchdog::Watchdog(ProgressLock& progress_lock, const Pulse& pulse, const LastActivity& acts,
                   const StallJudge::Limits& limits, Duties duties)
    : progress_lock_(progress_lock),
      pulse_(pulse),
      acts_(acts),
      duties_(std::move(duties)),
      judge_(limits),
      thread_([this] { run(); }) {
  ::pthread_setname_np(thread_.native_handle(), "kolo-watchdog");
}

Watchdog::~Watchdog() {
  {
    const MutexLock lock(mutex_);
    is_over_ = true;
  }
  ends_.notify_all();
  progress_lock_.wake();
  thread_.join();
}

/// Looks once per interval, and once more when a thread takes the lock after an idle time.
void Watchdog::run() {
  do {
    look();
    if (progress_lock_.await_holder(is_over_)) look();
  } while (sleep());
  look();  // This look reports a stuck engine that has just advanced and ended.
}

void Watchdog::look() {
  const StallJudge::Verdict verdict =
      judge_.look(progress_lock_.is_taken(), pulse_.read(), std::chrono::steady_clock::now());
  if (verdict.news == StallJudge::News::kNone) return;
  const bool is_stuck = verdict.news != StallJudge::News::kMovesAgain;
  try {
    duties_.note_stuck(is_stuck ? to_string(verdict.verb) : std::string_view());
    if (verdict.news == StallJudge::News::kGiveUp) {
      duties_.give_up(verdict);
    } else if (duties_.warn) {
      warn(verdict);
    }
  } catch (...) {
    // There is no memory for the text.
  }
}

void Watchdog::warn(const StallJudge::Verdict& verdict) const {
  fmt::memory_buffer line;
  const auto end = std::back_inserter(line);
  if (verdict.news == StallJudge::News::kMovesAgain) {
    fmt::format_to(end, "the engine moves again after {:.3g} s in '{}'", seconds(verdict.stuck_for),
                   to_string(verdict.verb));
  } else {
    fmt::format_to(end,
                   "the engine has not returned from '{}' for {:.3g} s; this rank cannot answer "
                   "its peers meanwhile",
                   to_string(verdict.verb), seconds(verdict.stuck_for));
    std::array<char, 100> act;
    const std::string_view last(act.data(), acts_.copy_text(act));
    if (!last.empty()) fmt::format_to(end, "; last act: {}", last.substr(0, last.find('\n')));
  }
  duties_.warn({line.data(), line.size()});
}

/// Sleeps for one interval. Returns false at the end of the watchdog.
bool Watchdog::sleep() {
  MutexLock lock(mutex_);
  return !ends_.wait_for(lock, judge_.interval(), [this] { return is_over_.load(); });
}

}  // namespace kolo
