#pragma once

#include <chrono>

#include "comm/base/clock.h"

namespace kolo {

/// Whether a user's thread, once it has marked the last gradient, is about to wait: it is if it
/// came at once in several iterations in a row. Then nothing needs to go on in the background.
///
///   mark ...... goes on, waits     goes on when the call that marks returns, which may have summed
///                                  a bucket meanwhile: that is no time that the user took
///
/// Threads: one at a time.
class PromptWaits {
 public:
  /// The call that marked the last gradient returns.
  void goes_on(TimePoint now) { went_on_ = now; }
  /// It waits.
  void waits(TimePoint now) { in_a_row_ = now - went_on_ < kPrompt ? in_a_row_ + 1 : 0; }

  bool expected() const { return in_a_row_ >= kToExpect; }

 private:
  static constexpr std::chrono::microseconds kPrompt{20};
  static constexpr int kToExpect = 4;

  TimePoint went_on_{};
  int in_a_row_ = 0;
};

}  // namespace kolo
