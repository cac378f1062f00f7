#pragma once

#include <cstdint>
#include <vector>

#include "trainer/optimizer/optimizer.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

/// Adam with decoupled weight decay.
///
/// A preconditioned parameter has a second moment of this rank's own gradients, from the first step
/// in which it was observed: their squares, divided by the number of ranks, estimate those of the
/// average where noise dominates. It differs between ranks. The gradient is divided by its root,
/// and a step is lr times the averaged result, without a first moment: residuals are late already,
/// and momentum would delay them further. A skipped step leaves all moments unchanged. Source:
/// Loshchilov and Hutter, "Decoupled Weight Decay Regularization", ICLR 2019.
class AdamW final : public Optimizer {
 public:
  AdamW(ParameterSet& parameters, const OptimizerOptions& options);
  void begin_step() override { ++steps_; }
  void update(std::size_t parameter, float lr, float gradient_scale) override;
  void leave_out_momentum(std::size_t parameter) override;
  void observe(std::size_t parameter, int ranks) override;
  void precondition(std::size_t parameter, int ranks) override;
  bool is_adaptive() const override { return true; }

 private:
  void step_along_gradient(std::size_t parameter, float lr, float gradient_scale);
  void step_along_direction(std::size_t parameter, float lr, float gradient_scale);

  OptimizerOptions options_;
  // All by parameter.
  std::vector<Tensor> first_moment_, second_moment_;
  std::vector<Tensor> own_moment_, next_own_moment_;  // empty unless observed or preconditioned
  std::vector<bool> has_direction_;                   // where a gradient would be
  std::int64_t steps_ = 0;
};

}  // namespace kolo::trainer
