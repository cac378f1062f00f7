#include "trainer/optimizer/adamw.h"

#include <cmath>

#include "trainer/kernels/update.h"

namespace kolo::trainer {

float bias_correction(float beta, std::int64_t steps) {
  return static_cast<float>(
      1.0 / (1.0 - std::pow(static_cast<double>(beta), static_cast<double>(steps))));
}

OptimizerEntry AdamW::entry() {
  return {.name = "adamw",
          .help = "Adam with decoupled weight decay",
          .make = [](ParameterSet& parameters, const OptimizerOptions& options) {
            return std::make_unique<AdamW>(parameters, options);
          }};
}

AdamW::AdamW(ParameterSet& parameters, const OptimizerOptions& options)
    : Optimizer(parameters), options_(options) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    first_moment_.emplace_back(parameters[i].shape());
    second_moment_.emplace_back(parameters[i].shape());
  }
}

void AdamW::update(std::size_t index, float lr, float gradient_scale) {
  Parameter& parameter = parameters_[index];
  adamw_update({.lr = lr,
                .beta1 = options_.beta1,
                .beta2 = options_.beta2,
                .epsilon = options_.epsilon,
                .weight_decay = decays(parameter) ? options_.weight_decay : 0.0f,
                .bias_correction1 = bias_correction(options_.beta1, steps_),
                .bias_correction2 = bias_correction(options_.beta2, steps_),
                .gradient_scale = gradient_scale},
               parameter.gradient(), first_moment_[index].span(), second_moment_[index].span(),
               parameter.value());
}

void AdamW::follow(std::size_t index, float lr, float gradient_scale) {
  Parameter& parameter = parameters_[index];
  // The first moment is not read again, so its memory takes a velocity.
  sgd_update({.lr = lr,
              .momentum = 0.0f,
              .weight_decay = decays(parameter) ? options_.weight_decay : 0.0f,
              .gradient_scale = gradient_scale},
             parameter.gradient(), first_moment_[index].span(), parameter.value());
}

}  // namespace kolo::trainer
