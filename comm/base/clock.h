#pragma once

#include <time.h>

#include <chrono>
#include <functional>

namespace kolo {

using Duration = std::chrono::nanoseconds;
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;

/// A function that long work calls repeatedly, so that other work can proceed. May be empty.
using Pause = std::function<void()>;

/// Converts to microseconds, including the fraction.
constexpr double to_us(Duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

/// Converts to nanoseconds. Returns the longest duration if `time` does not fit.
constexpr Duration saturated(std::chrono::milliseconds time) {
  constexpr auto kLongest = std::chrono::duration_cast<std::chrono::milliseconds>(Duration::max());
  return time > kLongest ? Duration::max() : Duration(time);
}

/// Returns `from` plus `time`, or the last point in time if the sum does not fit.
constexpr TimePoint later(TimePoint from, Duration time) {
  return time > TimePoint::max() - from ? TimePoint::max() : from + time;
}

/// A monotonic source of time: the machine's clock in production, a manual clock in simulations.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint now() const = 0;
};

class SteadyClock final : public Clock {
 public:
  TimePoint now() const override { return std::chrono::steady_clock::now(); }
};

/// A clock that returns the time of the kernel's last tick, at most 10 ms ago. Reading it takes a
/// seventh of the time of a `SteadyClock`, for timeouts that are checked often.
class CoarseClock final : public Clock {
 public:
  TimePoint now() const override {
    timespec time;
    ::clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
    return TimePoint(std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec));
  }
};

/// A clock that stands still until it is advanced. Threads: one.
class ManualClock final : public Clock {
 public:
  TimePoint now() const override { return now_; }
  void advance(Duration by) { now_ += by; }

 private:
  TimePoint now_{};
};

}  // namespace kolo
