#pragma once

#include <optional>
#include <vector>

#include "comm/base/clock.h"
#include "compression/chooser.h"

namespace kolo {

/// How long iterations take, from the end of one `wait` to that of the next, and how long these
/// waited, while somebody wants to know. Units: microseconds. Threads: one at a time.
class StepTimes {
 public:
  /// Notes times until `stop`; the first step that counts begins at the next `end_step`. `clock`
  /// outlives that.
  void start(const Clock& clock) { clock_ = &clock; }
  void stop();

  /// `wait` is called; of several calls in one iteration the first one counts.
  void begin_wait();
  /// The last `wait` of an iteration returns.
  void end_step();
  /// The same of an iteration whose time is no measure of others.
  void end_step_uncounted();

  /// What was noted since the last call of this or `take_dense`.
  std::vector<double> take();
  /// The same as lower quartiles, since whatever disturbs steps makes them longer, and without the
  /// first few steps, which touch memory for the first time; 0 of none.
  DenseSteps take_dense();

 private:
  const Clock* clock_ = nullptr;  // null while nobody wants to know
  std::optional<TimePoint> step_began_, wait_began_;
  std::vector<double> steps_us_, waits_us_;
};

}  // namespace kolo
