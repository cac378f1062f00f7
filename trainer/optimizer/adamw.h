#pragma once

#include <cstdint>
#include <vector>

#include "trainer/optimizer/optimizer.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

/// Adam with decoupled weight decay.
///
/// A parameter whose momentum was left out has a second moment of this rank's own gradients, which
/// differs between ranks: `precondition` divides by its root, and `step` takes what comes back as
/// (1 - beta1) times a direction. A step that is not taken leaves the second moment as it was.
/// Source: Loshchilov and Hutter, "Decoupled Weight Decay Regularization", ICLR 2019.
class AdamW final : public Optimizer {
 public:
  AdamW(ParameterSet& parameters, const OptimizerOptions& options);
  void step(float lr, float gradient_scale) override;
  void leave_out_momentum(std::size_t parameter) override { has_momentum_[parameter] = false; }
  void precondition(std::size_t parameter) override;
  bool is_adaptive() const override { return true; }

 private:
  void step_along_direction(std::size_t parameter, float lr, float gradient_scale);

  ParameterSet& parameters_;
  OptimizerOptions options_;
  std::vector<bool> has_momentum_;    // by parameter
  std::vector<Tensor> first_moment_;  // without momentum: room for the next second moment
  std::vector<Tensor> second_moment_;
  std::int64_t steps_ = 0;
};

}  // namespace kolo::trainer
