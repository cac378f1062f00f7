#pragma once

#include <cstdint>
#include <vector>

#include "trainer/optimizer/optimizer.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

/// Adam with decoupled weight decay.
///
/// Source: Loshchilov and Hutter, "Decoupled Weight Decay Regularization", ICLR 2019.
class AdamW final : public Optimizer {
 public:
  static OptimizerEntry entry();

  AdamW(ParameterSet& parameters, const OptimizerOptions& options);
  void begin_step() override { ++steps_; }
  void update(std::size_t parameter, float lr, float gradient_scale) override;
  void follow(std::size_t parameter, float lr, float gradient_scale) override;
  std::optional<Adaptation> adaptation() const override {
    return Adaptation{.beta2 = options_.beta2, .epsilon = options_.epsilon};
  }

 private:
  OptimizerOptions options_;
  std::vector<Tensor> first_moment_, second_moment_;  // by parameter
  std::int64_t steps_ = 0;
};

/// 1 / (1 - beta^steps), which corrects a running mean that starts at zero and is too small at
/// first. Before: steps > 0.
float bias_correction(float beta, std::int64_t steps);

}  // namespace kolo::trainer
