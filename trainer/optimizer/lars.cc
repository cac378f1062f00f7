#include "trainer/optimizer/lars.h"

#include <cmath>

#include "trainer/kernels/update.h"
#include "trainer/kernels/vector.h"

namespace kolo::trainer {

OptimizerEntry Lars::entry() {
  return {.name = "lars",
          .help = "SGD with steps that are a share of the weights, for large batches",
          .make =
              [](ParameterSet& parameters, const OptimizerOptions& options) {
                return std::make_unique<Lars>(parameters, options);
              },
          .reads = {"--momentum"}};
}

Lars::Lars(ParameterSet& parameters, const OptimizerOptions& options)
    : Optimizer(parameters, options) {
  require_no_rows("lars");
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    velocity_.push_back(make_state(parameters[i]));
  }
}

void Lars::visit_state(StateVisitor& visitor) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    visit_elements(visitor, "lars.velocity", parameters_[i], velocity_[i]);
  }
}

void Lars::update(std::size_t index, float lr, float gradient_scale) {
  apply(index, lr, gradient_scale, add_up(index, parameters_[index].size()));
}

Lars::Squares Lars::squares_of(std::size_t index, ElementRange range) const {
  if (weight_decay(index) == 0.0f) return {};
  const Parameter& parameter = parameters_[index];
  Squares squares{.of_weights =
                      sum_of_squares(parameter.value().subspan(range.begin, range.count))};
  parameter.visit_averages(
      range, [&](std::span<const float> part) { squares.of_step += sum_of_squares(part); });
  return squares;
}

void Lars::apply(std::size_t index, float lr, float gradient_scale, const Squares& whole) {
  const double decay = weight_decay(index);
  double local = 1.0;
  if (decay > 0.0) {
    const double of_weights = std::sqrt(whole.of_weights);
    const double of_gradient = gradient_scale * std::sqrt(whole.of_step);
    const double change = of_gradient + decay * of_weights;
    if (of_weights > 0.0 && change > 0.0) local = kTrust * of_weights / change;
  }
  const SgdStep step{.lr = lr,
                     .momentum = options_.momentum,
                     .weight_decay = static_cast<float>(local * decay),
                     .gradient_scale = static_cast<float>(local * gradient_scale)};
  visit_parts(index, [&](const Part& part) {
    sgd_update(step, part.gradient, part.of(velocity_[index]), part.value);
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
