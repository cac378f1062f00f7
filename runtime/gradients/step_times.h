#pragma once

#include <optional>
#include <vector>

#include "comm/base/clock.h"
#include "compression/chooser.h"

namespace kolo {

/// How long iterations take, from the end of one `wait` to the end of the next, and how much of
/// that is spent inside `wait`. Units: microseconds. Threads: one at a time.
class StepTimes {
 public:
  /// Begins to note times; the first step that counts begins at the next `end_step`. `clock`
  /// outlives `take`.
  void start(const Clock& clock) { clock_ = &clock; }

  /// `wait` is called; of several calls without a pause the first one counts.
  void begin_wait();
  /// The wait goes on later in this iteration; the time until then does not count as one.
  void pause_wait();
  /// The last `wait` of an iteration returns.
  void end_step();

  /// The lower quartiles of the times since `start`, since every disturbance makes a step longer.
  /// The first few steps are left out, because they touch memory for the first time. Zero if no
  /// others are left. Noting ends.
  DenseSteps take();

 private:
  const Clock* clock_ = nullptr;  // null while times are not noted
  std::optional<TimePoint> step_began_, wait_began_;
  Duration paused_wait_{0};  // before the last pause
  std::vector<double> steps_us_, waits_us_;
};

}  // namespace kolo
