#include "trainer/optimizer/sgd.h"

namespace kolo::trainer {

OptimizerEntry Sgd::entry() {
  return {.name = "sgd",
          .help = "stochastic gradient descent with momentum",
          .make = [](ParameterSet& parameters, const OptimizerOptions& options) {
            return std::make_unique<Sgd>(parameters, options);
          }};
}

Sgd::Sgd(ParameterSet& parameters, const OptimizerOptions& options)
    : Optimizer(parameters, options) {
  for (std::size_t i = 0; i < parameters.size(); ++i) velocity_.emplace_back(parameters[i].shape());
}

void Sgd::visit_state(StateVisitor& visitor) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Parameter& parameter = parameters_[i];
    visitor.shared("sgd.velocity/" + parameter.name(), parameter.shape(), velocity_[i].span());
  }
}

void Sgd::update(std::size_t index, float lr, float gradient_scale) {
  move(index, {.lr = lr,
               .momentum = options_.momentum,
               .weight_decay = weight_decay(index),
               .gradient_scale = gradient_scale,
               .nesterov = options_.nesterov});
}

void Sgd::follow(std::size_t index, float lr, float gradient_scale) {
  move(index, {.lr = lr,
               .momentum = 0.0f,
               .weight_decay = weight_decay(index) / (1.0f - options_.momentum),
               .gradient_scale = gradient_scale});
}

void Sgd::move(std::size_t index, const SgdStep& step) {
  Parameter& parameter = parameters_[index];
  parameter.visit_gradient([&](std::size_t begin, std::span<const float> gradient) {
    const auto part = [&](std::span<float> all) { return all.subspan(begin, gradient.size()); };
    sgd_update(step, gradient, part(velocity_[index].span()), part(parameter.value()));
  });
}

}  // namespace kolo::trainer
