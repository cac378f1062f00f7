#pragma once

#include <algorithm>
#include <chrono>

#include "comm/base/clock.h"

namespace kolo {

/// How long waiting threads look before they sleep, by what former sleeps were worth: falling
/// asleep and waking up take some 5 µs on a flag and up to 100 where a network is waited for, too.
///
///   the last sleep   the next one comes after
///   was shorter      twice the time, up to `most`
///   was longer       half of the time, down to `least`
///
/// So loops of small sums look, and who waits for much to arrive leaves its core alone.
///
/// Threads: one at a time.
class SpinTime {
 public:
  SpinTime(Duration least, Duration most) : least_(least), most_(most), now_(least) {}

  Duration now() const { return now_; }
  /// A sleep lasted this long.
  void slept(Duration time) {
    now_ = time < kWorthwhile ? std::min(2 * now_, most_) : std::max(now_ / 2, least_);
  }

 private:
  static constexpr Duration kWorthwhile = std::chrono::microseconds(100);

  Duration least_;
  Duration most_;
  Duration now_;
};

}  // namespace kolo
