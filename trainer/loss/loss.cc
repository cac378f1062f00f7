#include "trainer/loss/loss.h"

#include <fmt/format.h>

namespace kolo::trainer {

std::string describe(const Metric& metric, double value) {
  if (metric.is_share) return fmt::format("{} {:.2f} %", metric.name, 100.0 * value);
  return fmt::format("{} {:.4f}", metric.name, value);
}

}  // namespace kolo::trainer
