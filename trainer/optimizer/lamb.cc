#include "trainer/optimizer/lamb.h"

#include <algorithm>
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

Lamb::Lamb(ParameterSet& parameters, const OptimizerOptions& options)
    : AdamMoments(parameters, options) {
  require_whole_gradients("lamb");
  std::size_t largest = 0;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    largest = std::max(largest, parameters[i].size());
  }
  direction_ = Tensor({largest});
}

void Lamb::update(std::size_t index, float lr, float gradient_scale) {
  Parameter& parameter = parameters_[index];
  const std::span<float> direction = direction_.span().first(parameter.size());
  const AdamWStep step = step_of(index, lr, gradient_scale);
  parameter.visit_gradient([&](std::size_t begin, std::span<const float> gradient) {
    const auto part = [&](std::span<float> all) { return all.subspan(begin, gradient.size()); };
    std::ranges::copy(gradient, part(direction).begin());
    adamw_direction(step, part(direction), part(first_moment_[index].span()),
                    part(second_moment_[index].span()), part(parameter.value()));
  });
  double trust = 1.0;
  if (weight_decay(index) > 0.0f) {
    const double of_weights = std::sqrt(sum_of_squares(parameter.value()));
    const double of_direction = std::sqrt(sum_of_squares(direction));
    if (of_weights > 0.0 && of_direction > 0.0) trust = of_weights / of_direction;
  }
  add_scaled(direction, static_cast<float>(-lr * trust), parameter.value());
}

}  // namespace kolo::trainer
