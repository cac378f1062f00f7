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
  /// Starts measuring; the first step that counts begins at the next `end_step`. `clock` must live
  /// until `take`.
  void start(const Clock& clock) { clock_ = &clock; }

  /// Called when `wait` begins; has no effect during a wait that is not paused.
  void begin_wait();
  /// Called when the program stops waiting, and will wait again in this iteration.
  void pause_wait();
  /// Called when the last `wait` of an iteration returns.
  void end_step();

  /// Stops measuring, and returns the lower quartiles of the times since `start`, because
  /// disturbances only make a step longer. Ignores the first few steps, which touch memory for the
  /// first time. Returns zeros if there are no other steps.
  DenseSteps take();

 private:
  const Clock* clock_ = nullptr;  // null unless measuring
  std::optional<TimePoint> step_began_, wait_began_;
  Duration paused_wait_{0};  // waited before the last pause
  std::vector<double> steps_us_, waits_us_;
};

}  // namespace kolo
