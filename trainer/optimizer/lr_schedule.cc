#include "trainer/optimizer/lr_schedule.h"

#include <cmath>
#include <numbers>

namespace kolo::trainer {

float LrSchedule::at(std::size_t step) const {
  if (step < warmup_steps) {
    return peak_lr * static_cast<float>(step + 1) / static_cast<float>(warmup_steps);
  }
  if (step + 1 >= total_steps) return final_lr;
  // Here warmup_steps <= step < total_steps - 1.
  const double progress = static_cast<double>(step - warmup_steps) /
                          static_cast<double>(total_steps - 1 - warmup_steps);
  const double share = 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
  return final_lr + (peak_lr - final_lr) * static_cast<float>(share);
}

}  // namespace kolo::trainer
