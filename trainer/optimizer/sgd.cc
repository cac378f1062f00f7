#include "trainer/optimizer/sgd.h"

#include "trainer/kernels/update.h"

namespace kolo::trainer {

Sgd::Sgd(ParameterSet& parameters, const OptimizerOptions& options)
    : Optimizer(parameters), options_(options), momentum_(parameters.size(), options.momentum) {
  for (std::size_t i = 0; i < parameters.size(); ++i) velocity_.emplace_back(parameters[i].shape());
}

void Sgd::update(std::size_t index, float lr, float gradient_scale) {
  Parameter& parameter = parameters_[index];
  sgd_update({.lr = lr,
              .momentum = momentum_[index],
              .weight_decay = decays(parameter) ? weight_decay(index) : 0.0f,
              .gradient_scale = gradient_scale},
             parameter.gradient(), velocity_[index].span(), parameter.value());
}

float Sgd::weight_decay(std::size_t parameter) const {
  const bool is_accumulated = momentum_[parameter] == options_.momentum;
  return options_.weight_decay / (is_accumulated ? 1.0f : 1.0f - options_.momentum);
}

}  // namespace kolo::trainer
