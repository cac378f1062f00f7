#include "trainer/optimizer/lamb.h"

#include <cmath>

#include "trainer/kernels/vector.h"

namespace kolo::trainer {

OptimizerEntry Lamb::entry() {
  return {.name = "lamb",
          .help = "AdamW with steps as long as the weights, for large batches",
          .make = [](ParameterSet& parameters, const OptimizerOptions& options) {
            return std::make_unique<Lamb>(parameters, options);
          }};
}

void Lamb::update(std::size_t index, float lr, float gradient_scale) {
  Parameter& parameter = parameters_[index];
  const std::span<float> direction = parameter.gradient();
  adamw_direction(step_of(index, lr, gradient_scale), direction, first_moment_[index].span(),
                  second_moment_[index].span(), parameter.value());
  double trust = 1.0;
  if (weight_decay(index) > 0.0f) {
    const double of_weights = std::sqrt(sum_of_squares(parameter.value()));
    const double of_direction = std::sqrt(sum_of_squares(direction));
    if (of_weights > 0.0 && of_direction > 0.0) trust = of_weights / of_direction;
  }
  add_scaled(direction, static_cast<float>(-lr * trust), parameter.value());
}

}  // namespace kolo::trainer
