#pragma once

#include <cstdint>
#include <vector>

#include "trainer/kernels/update.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

/// The part that Adam's relatives share: two moments of each parameter and the number of steps.
///
/// A direction that is followed moves a parameter as by AdamW.
class AdamMoments : public Optimizer {
 public:
  AdamMoments(ParameterSet& parameters, const OptimizerOptions& options);
  void visit_state(StateVisitor& visitor) override;
  void begin_step() override { ++steps_; }
  void follow(std::size_t parameter, float lr, float gradient_scale) override;
  std::optional<Adaptation> adaptation() const override {
    return Adaptation{.beta2 = options_.beta2, .epsilon = options_.epsilon};
  }

 protected:
  /// The step of a parameter in the present step of the optimizer.
  AdamWStep step_of(std::size_t parameter, float lr, float gradient_scale) const;

  std::vector<Tensor> first_moment_, second_moment_;  // by parameter

 private:
  std::uint64_t steps_ = 0;
};

/// 1 / (1 - beta^steps), which corrects a running mean that starts at zero and is too small at
/// first. Before: steps > 0.
float bias_correction(float beta, std::uint64_t steps);

}  // namespace kolo::trainer
