#include "trainer/optimizer/adamw.h"

#include <cmath>
#include <utility>

#include "trainer/kernels/update.h"

namespace kolo::trainer {
namespace {

// 1 / (1 - beta^steps): moments that start at zero are too small at first.
float bias_correction(float beta, std::int64_t steps) {
  return static_cast<float>(
      1.0 / (1.0 - std::pow(static_cast<double>(beta), static_cast<double>(steps))));
}

}  // namespace

AdamW::AdamW(ParameterSet& parameters, const OptimizerOptions& options)
    : parameters_(parameters), options_(options), has_momentum_(parameters.size(), true) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    first_moment_.emplace_back(parameters[i].shape());
    second_moment_.emplace_back(parameters[i].shape());
  }
}

void AdamW::step(float lr, float gradient_scale) {
  ++steps_;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!has_momentum_[i]) {
      step_along_direction(i, lr, gradient_scale);
      continue;
    }
    Parameter& parameter = parameters_[i];
    adamw_update({.lr = lr,
                  .beta1 = options_.beta1,
                  .beta2 = options_.beta2,
                  .epsilon = options_.epsilon,
                  .weight_decay = decays(parameter) ? options_.weight_decay : 0.0f,
                  .bias_correction1 = bias_correction(options_.beta1, steps_),
                  .bias_correction2 = bias_correction(options_.beta2, steps_),
                  .gradient_scale = gradient_scale},
                 parameter.gradient(), first_moment_[i].span(), second_moment_[i].span(),
                 parameter.value());
  }
}

void AdamW::precondition(std::size_t parameter) {
  adam_direction({.beta2 = options_.beta2,
                  .epsilon = options_.epsilon,
                  .bias_correction2 = bias_correction(options_.beta2, steps_ + 1)},
                 second_moment_[parameter].span(), first_moment_[parameter].span(),
                 parameters_[parameter].gradient());
}

void AdamW::step_along_direction(std::size_t index, float lr, float gradient_scale) {
  Parameter& parameter = parameters_[index];
  std::swap(first_moment_[index], second_moment_[index]);
  // The former second moment is a velocity that nobody reads.
  sgd_update({.lr = lr,
              .momentum = 0.0f,
              .weight_decay = decays(parameter) ? options_.weight_decay : 0.0f,
              .gradient_scale = (1.0f - options_.beta1) * gradient_scale},
             parameter.gradient(), first_moment_[index].span(), parameter.value());
}

}  // namespace kolo::trainer
