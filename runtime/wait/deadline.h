#pragma once

#include <chrono>
#include <optional>

#include "comm/base/clock.h"

namespace kolo {

/// The end of a wait. Its time begins at the first look at it, which is when a thread has polled in
/// vain: most waits end before, and save the time of reading the clock.
class Deadline {
 public:
  /// 0: never.
  explicit Deadline(std::chrono::milliseconds timeout) : timeout_(timeout) {}
  /// The time has begun.
  Deadline(std::chrono::milliseconds timeout, TimePoint begin) : timeout_(timeout) {
    begin_at(begin);
  }

  TimePoint get() {
    if (!end_) begin_at(std::chrono::steady_clock::now());
    return *end_;
  }

 private:
  void begin_at(TimePoint begin) {
    end_ = timeout_.count() == 0 ? TimePoint::max() : later(begin, saturated(timeout_));
  }

  std::chrono::milliseconds timeout_;
  std::optional<TimePoint> end_ = {};
};

}  // namespace kolo
