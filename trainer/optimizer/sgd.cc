#include "trainer/optimizer/sgd.h"

namespace kolo::trainer {

OptimizerEntry Sgd::entry() {
  return {.name = "sgd",
          .help = "stochastic gradient descent with momentum",
          .make =
              [](ParameterSet& parameters, const OptimizerOptions& options) {
                return std::make_unique<Sgd>(parameters, options);
              },
          .reads = {"--momentum", "--nesterov"}};
}

Sgd::Sgd(ParameterSet& parameters, const OptimizerOptions& options)
    : Optimizer(parameters, options) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    velocity_.push_back(make_state(parameters[i]));
  }
}

void Sgd::visit_state(StateVisitor& visitor) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    visit_elements(visitor, "sgd.velocity", parameters_[i], velocity_[i]);
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
  visit_parts(index, [&](const Part& part) {
    sgd_update(step, part.gradient, part.of(velocity_[index]), part.value);
  });
}

}  // namespace kolo::trainer
