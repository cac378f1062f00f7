#pragma once

#include <optional>
#include <vector>

#include "comm/base/clock.h"
#include "compression/chooser.h"

namespace kolo {

/// Measures how long iterations take, from the end of one `wait` to the end of the next, and how
/// much of that is spent inside `wait`. Unit: microseconds. Threads: one at a time.
class StepTimes {
 public:
  /// Starts measuring; the first step that counts begins at the next `end_step`. `clock` outlives
  /// `take`.
  void start(const Clock& clock) { clock_ = &clock; }

  /// `wait` is called; of several calls without a pause the first one counts.
  void begin_wait();
  /// The wait continues later in this iteration; the time until then is not waiting.
  void pause_wait();
  /// The last `wait` of an iteration returns.
  void end_step();

  /// Stops measuring, and returns the lower quartiles of the times since `start`, since a
  /// disturbance only makes a step longer. The first few steps are left out, because they touch
  /// memory for the first time. Zero if no others are left.
  DenseSteps take();

 private:
  const Clock* clock_ = nullptr;  // null unless measuring
  std::optional<TimePoint> step_began_, wait_began_;
  Duration paused_wait_{0};  // before the last pause
  std::vector<double> steps_us_, waits_us_;
};

}  // namespace kolo
