#pragma once

#include <cstddef>
#include <string>

namespace kolo::trainer {

/// The fall of a learning rate: the share that is left, from 1 at `progress` 0 to 0 at 1.
using LrFall = double (*)(double progress);

/// A course that --lr-schedule can name.
struct LrScheduleEntry {
  std::string name;
  std::string help;  ///< In a few words.
  LrFall fall;
};

LrScheduleEntry cosine_schedule();
LrScheduleEntry linear_schedule();
LrScheduleEntry step_schedule();
LrScheduleEntry constant_schedule();

/// Learning rate by step: a linear rise over `warmup_steps`, then a fall down to `final_lr` at the
/// last step.
///
/// Source: Loshchilov and Hutter, "SGDR", ICLR 2017, without restarts, for the cosine.
struct LrSchedule {
  float peak_lr;
  float final_lr;  ///< Of a schedule that falls.
  std::size_t warmup_steps;
  std::size_t total_steps;
  LrFall fall;

  /// Shape: step 0 is the first; steps beyond the last have its rate.
  float at(std::size_t step) const;
};

}  // namespace kolo::trainer
