#include "trainer/divergence.h"

#include <algorithm>
#include <cmath>
#include <span>

#include <fmt/format.h>

namespace kolo::trainer {
namespace {

bool has_lost_numbers(std::span<const float> values) {
  return !std::ranges::all_of(values, [](float value) { return std::isfinite(value); });
}

}  // namespace

std::string first_not_finite(const ParameterSet& parameters) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (has_lost_numbers(parameters[i].value())) {
      return fmt::format("the weights of '{}'", parameters[i].name());
    }
  }
  for (std::size_t i = parameters.size(); i-- > 0;) {
    bool has_lost = false;
    parameters[i].visit_gradient([&](std::size_t, std::span<const float> part) {
      has_lost = has_lost || has_lost_numbers(part);
    });
    if (has_lost) {
      return fmt::format("the gradient of '{}'", parameters[i].name());
    }
  }
  return {};
}

void throw_diverged(const std::string& what, const ParameterSet& parameters) {
  const std::string first = first_not_finite(parameters);
  throw DivergedError(
      Error{.verb = {},
            .bucket = {},
            .what = fmt::format("training diverged: {} not finite{}; try a lower --lr, more "
                                "--warmup-steps or a --clip-norm, or --loss-scale dynamic if a "
                                "step computes or sends float16",
                                what, first.empty() ? "" : ", first " + first)});
}

}  // namespace kolo::trainer
