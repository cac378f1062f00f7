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
  adamw_update(step_of(index, lr, gradient_scale), parameter.gradient(),
               first_moment_[index].span(), second_moment_[index].span(), parameter.value());
}

}  // namespace kolo::trainer
