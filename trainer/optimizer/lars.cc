#include "trainer/optimizer/lars.h"

#include <cmath>

#include "trainer/kernels/update.h"
#include "trainer/kernels/vector.h"
#include "trainer/optimizer/gradient_norm.h"

namespace kolo::trainer {

OptimizerEntry Lars::entry() {
  return {.name = "lars",
          .help = "SGD with steps that are a share of the weights, for large batches",
          .make = [](ParameterSet& parameters, const OptimizerOptions& options) {
            return std::make_unique<Lars>(parameters, options);
          }};
}

Lars::Lars(ParameterSet& parameters, const OptimizerOptions& options)
    : Optimizer(parameters, options) {
  require_whole_gradients("lars");
  for (std::size_t i = 0; i < parameters.size(); ++i) velocity_.emplace_back(parameters[i].shape());
}

void Lars::visit_state(StateVisitor& visitor) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Parameter& parameter = parameters_[i];
    visitor.shared("lars.velocity/" + parameter.name(), parameter.shape(), velocity_[i].span());
  }
}

void Lars::update(std::size_t index, float lr, float gradient_scale) {
  Parameter& parameter = parameters_[index];
  const double decay = weight_decay(index);
  double local = 1.0;
  if (decay > 0.0) {
    const double of_weights = std::sqrt(sum_of_squares(parameter.value()));
    const double of_gradient = gradient_scale * std::sqrt(sum_of_squares(parameter));
    const double change = of_gradient + decay * of_weights;
    if (of_weights > 0.0 && change > 0.0) local = kTrust * of_weights / change;
  }
  const SgdStep step{.lr = lr,
                     .momentum = options_.momentum,
                     .weight_decay = static_cast<float>(local * decay),
                     .gradient_scale = static_cast<float>(local * gradient_scale)};
  parameter.visit_gradient([&](std::size_t begin, std::span<const float> gradient) {
    const auto part = [&](std::span<float> all) { return all.subspan(begin, gradient.size()); };
    sgd_update(step, gradient, part(velocity_[index].span()), part(parameter.value()));
  });
}

void Lars::follow(std::size_t index, float lr, float gradient_scale) {
  Parameter& parameter = parameters_[index];
  sgd_update({.lr = lr,
              .momentum = 0.0f,
              .weight_decay = weight_decay(index) / (1.0f - options_.momentum),
              .gradient_scale = gradient_scale},
             parameter.gradient(), velocity_[index].span(), parameter.value());
}

}  // namespace kolo::trainer
