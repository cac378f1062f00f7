#include "compression/density_schedule.h"

#include <algorithm>
#include <cmath>

#include "comm/base/check.h"

namespace kolo {

std::optional<double> density_at(const WarmUp& warm_up, double density, std::size_t step) {
  if (step < warm_up.dense_steps) return std::nullopt;
  if (warm_up.steps_per_density == 0) return density;
  const std::size_t stage = (step - warm_up.dense_steps) / warm_up.steps_per_density;
  return stage < warm_up.ramp.size() ? warm_up.ramp[stage] : density;
}

std::size_t pairs_to_keep(double density, std::size_t count) {
  check(density > 0 && density <= 1, "a density lies above 0 and does not exceed 1");
  if (count == 0) return 0;
  // 0.1 * 30 is a little more than 3, and means 3.
  constexpr double kSlightlyLess = 1 - 1e-12;
  const double pairs = std::ceil(density * static_cast<double>(count) * kSlightlyLess);
  return std::clamp<std::size_t>(static_cast<std::size_t>(pairs), 1, count);
}

}  // namespace kolo
