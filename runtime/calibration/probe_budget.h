#pragma once

#include <chrono>

#include "comm/base/clock.h"

namespace kolo {

/// Shares out the time that measuring may take. Each part gets what is left divided by the parts
/// that are left, so what one does not need or takes too much of is all the others':
///
///   |--- part 1 ---|--- part 2 ---|--- part 3 ---|      until `end`
///   |-1-|------ part 2 ------|------ part 3 -----|      part 1 was done soon
///
/// Threads: one. `clock` outlives it.
class ProbeBudget {
 public:
  ProbeBudget(const Clock& clock, TimePoint end) : clock_(clock), end_(end) {}

  /// Begins the next part, which is one of so many that are left.
  void begin(int parts_left) {
    const TimePoint now = clock_.now();
    part_end_ = now + (end_ - now) / parts_left;
  }

  /// Whether there is time left of this part, and more than so much.
  bool affords(double us = 0) const { return us_until(part_end_) > us; }
  /// The same of all parts that are left.
  bool affords_in_all(double us) const { return us_until(end_) > us; }

 private:
  double us_until(TimePoint time) const {
    return std::chrono::duration<double, std::micro>(time - clock_.now()).count();
  }

  const Clock& clock_;
  const TimePoint end_;
  TimePoint part_end_{};
};

}  // namespace kolo
