#include "trainer/optimizer/adamw.h"

namespace kolo::trainer {

OptimizerEntry AdamW::entry() {
  return {.name = "adamw",
          .help = "Adam with decoupled weight decay",
          .make =
              [](ParameterSet& parameters, const OptimizerOptions& options) {
                return std::make_unique<AdamW>(parameters, options);
              },
          .reads = {"--beta1", "--beta2", "--epsilon"}};
}

void AdamW::update(std::size_t index, float lr, float gradient_scale) {
  const AdamWStep step = step_of(index, lr, gradient_scale);
  visit_parts(index, [&](const Part& part) {
    adamw_update(step, part.gradient, part.of(first_moment_[index]), part.of(second_moment_[index]),
                 part.value);
  });
}

}  // namespace kolo::trainer
