#include "trainer/optimizer/adam_moments.h"

#include <cmath>

namespace kolo::trainer {

float bias_correction(float beta, std::uint64_t steps) {
  return static_cast<float>(
      1.0 / (1.0 - std::pow(static_cast<double>(beta), static_cast<double>(steps))));
}

AdamMoments::AdamMoments(ParameterSet& parameters, const OptimizerOptions& options)
    : Optimizer(parameters, options) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    first_moment_.push_back(make_state(parameters[i]));
    second_moment_.push_back(make_state(parameters[i]));
  }
}

void AdamMoments::visit_state(StateVisitor& visitor) {
  visitor.shared("adam.steps", steps_);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    visit_elements(visitor, "adam.first_moment", parameters_[i], first_moment_[i]);
    visit_elements(visitor, "adam.second_moment", parameters_[i], second_moment_[i]);
  }
}

void AdamMoments::follow(std::size_t index, float lr, float gradient_scale) {
  Parameter& parameter = parameters_[index];
  // The first moment is not read again, so its memory takes a velocity.
  sgd_update({.lr = lr,
              .momentum = 0.0f,
              .weight_decay = weight_decay(index),
              .gradient_scale = gradient_scale},
             parameter.gradient(), first_moment_[index].span(), parameter.value());
}

AdamWStep AdamMoments::step_of(std::size_t index, float lr, float gradient_scale) const {
  return {.lr = lr,
          .beta1 = options_.beta1,
          .beta2 = options_.beta2,
          .epsilon = options_.epsilon,
          .weight_decay = weight_decay(index),
          .bias_correction1 = bias_correction(options_.beta1, steps_),
          .bias_correction2 = bias_correction(options_.beta2, steps_),
          .gradient_scale = gradient_scale};
}

}  // namespace kolo::trainer
