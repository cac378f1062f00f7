#include "trainer/optimizer/lr_schedule.h"

#include <cmath>
#include <numbers>

namespace kolo::trainer {

LrScheduleEntry cosine_schedule() {
  return {.name = "cosine", .help = "half a cosine", .fall = [](double progress) {
            return 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
          }};
}

LrScheduleEntry linear_schedule() {
  return {.name = "linear", .help = "a straight line", .fall = [](double progress) {
            return 1.0 - progress;
          }};
}

LrScheduleEntry step_schedule() {
  return {.name = "step",
          .help = "to a tenth after half of the steps, to a hundredth after three quarters",
          .fall = [](double progress) {
            return progress < 0.5 ? 1.0 : progress < 0.75 ? 0.1 : 0.01;
          }};
}

LrScheduleEntry constant_schedule() {
  return {.name = "constant", .help = "no fall", .fall = [](double) { return 1.0; }};
}

float LrSchedule::at(std::size_t step) const {
  if (step < warmup_steps) {
    return peak_lr * static_cast<float>(step + 1) / static_cast<float>(warmup_steps);
  }
  // In the last step, and where the rise takes all steps, the fall is over.
  const double progress = step + 1 >= total_steps
                              ? 1.0
                              : static_cast<double>(step - warmup_steps) /
                                    static_cast<double>(total_steps - 1 - warmup_steps);
  return final_lr + (peak_lr - final_lr) * static_cast<float>(fall(progress));
}

}  // namespace kolo::trainer
