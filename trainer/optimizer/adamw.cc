#include "trainer/optimizer/adamw.h"

#include <cmath>
#include <utility>

#include "comm/base/error.h"
#include "trainer/kernels/update.h"

namespace kolo::trainer {
namespace {

// 1 / (1 - beta^steps): corrects moments that start at zero and are too small at first.
float bias_correction(float beta, std::int64_t steps) {
  return static_cast<float>(
      1.0 / (1.0 - std::pow(static_cast<double>(beta), static_cast<double>(steps))));
}

}  // namespace

AdamW::AdamW(ParameterSet& parameters, const OptimizerOptions& options)
    : Optimizer(parameters),
      options_(options),
      own_moment_(parameters.size()),
      next_own_moment_(parameters.size()),
      has_direction_(parameters.size(), false) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    first_moment_.emplace_back(parameters[i].shape());
    second_moment_.emplace_back(parameters[i].shape());
  }
}

void AdamW::update(std::size_t parameter, float lr, float gradient_scale) {
  if (has_direction_[parameter]) {
    step_along_direction(parameter, lr, gradient_scale);
  } else {
    step_along_gradient(parameter, lr, gradient_scale);
  }
  std::swap(own_moment_[parameter], next_own_moment_[parameter]);
}

void AdamW::leave_out_momentum(std::size_t parameter) {
  throw UsageError("AdamW cannot leave out the momentum of '" + parameters_[parameter].name() +
                   "'; use sgd with dgc");
}

void AdamW::step_along_gradient(std::size_t index, float lr, float gradient_scale) {
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

void AdamW::observe(std::size_t parameter, int ranks) {
  Tensor& own = own_moment_[parameter];
  Tensor& next = next_own_moment_[parameter];
  if (own.size() == 0) {
    own = Tensor(parameters_[parameter].shape());
    next = Tensor(parameters_[parameter].shape());
  }
  second_moment_update({.beta2 = options_.beta2, .square_scale = 1.0f / static_cast<float>(ranks)},
                       parameters_[parameter].gradient(), own.span(), next.span());
}

void AdamW::precondition(std::size_t parameter, int ranks) {
  observe(parameter, ranks);
  has_direction_[parameter] = true;
  adam_direction({.epsilon = options_.epsilon,
                  .bias_correction2 = bias_correction(options_.beta2, steps_ + 1)},
                 next_own_moment_[parameter].span(), parameters_[parameter].gradient());
}

void AdamW::step_along_direction(std::size_t index, float lr, float gradient_scale) {
  Parameter& parameter = parameters_[index];
  // The first moment is not read again, so its memory takes a velocity.
  sgd_update({.lr = lr,
              .momentum = 0.0f,
              .weight_decay = decays(parameter) ? options_.weight_decay : 0.0f,
              .gradient_scale = gradient_scale},
             parameter.gradient(), first_moment_[index].span(), parameter.value());
}

}  // namespace kolo::trainer
