#pragma once

#include <cstdint>
#include <vector>

#include "trainer/optimizer/optimizer.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

/// Adam with decoupled weight decay.
/// Source: Loshchilov and Hutter, "Decoupled Weight Decay Regularization", ICLR 2019.
class AdamW final : public Optimizer {
 public:
  AdamW(ParameterSet& parameters, const OptimizerOptions& options);
  void step(float lr, float gradient_scale) override;
  [[noreturn]] void leave_out_momentum(std::size_t parameter) override;

 private:
  ParameterSet& parameters_;
  OptimizerOptions options_;
  std::vector<Tensor> first_moment_;
  std::vector<Tensor> second_moment_;
  std::int64_t steps_ = 0;
};

}  // namespace kolo::trainer
