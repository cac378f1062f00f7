#pragma once

#include <chrono>
#include <cstdint>

#include "comm/base/clock.h"

namespace kolo {

/// How long the engine's thread naps while users' threads drive. When nobody drives any more it
/// finds out at the end of a nap; while they drive, that end costs one of them its core for some
/// microseconds.
///
///   users sat down since the last nap began     the next nap
///   every 200 µs or more often, for a nap       kLong: so few in a loop of small sums that its
///                                               99th percentile knows nothing of them
///   less often                                  kUsual
///
/// Threads: one, the engine's.
class Naps {
 public:
  static constexpr Duration kUsual = std::chrono::milliseconds(10);
  static constexpr Duration kLong = std::chrono::milliseconds(100);

  /// The one that begins now; users have sat down `drives` times so far.
  Duration next(TimePoint now, std::uint64_t drives) {
    const Duration passed = now - since_;
    const Duration at_most = kAtOnce * static_cast<Duration::rep>(drives - drives_);
    since_ = now;
    drives_ = drives;
    return passed >= kUsual && passed <= at_most ? kLong : kUsual;
  }

 private:
  static constexpr Duration kAtOnce = std::chrono::microseconds(200);

  TimePoint since_{};
  std::uint64_t drives_ = 0;
};

}  // namespace kolo
