#include "trainer/optimizer/adamw.h"

namespace kolo::trainer {

OptimizerEntry AdamW::entry() {
  return {.name = "adamw",
          .help = "Adam with decoupled weight decay",
          .make = [](ParameterSet& parameters, const OptimizerOptions& options) {
            return std::make_unique<AdamW>(parameters, options);
          }};
}

void AdamW::update(std::size_t index, float lr, float gradient_scale) {
  Parameter& parameter = parameters_[index];
  const AdamWStep step = step_of(index, lr, gradient_scale);
  parameter.visit_gradient([&](std::size_t begin, std::span<const float> gradient) {
    const auto part = [&](std::span<float> all) { return all.subspan(begin, gradient.size()); };
    adamw_update(step, gradient, part(first_moment_[index].span()),
                 part(second_moment_[index].span()), part(parameter.value()));
  });
}

}  // namespace kolo::trainer
