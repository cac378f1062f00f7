#pragma once

#include <vector>

#include "trainer/optimizer/optimizer.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

/// Stochastic gradient descent with momentum and weight decay.
///
/// Momentum makes decay 1 / (1 - momentum) times as strong. A parameter whose momentum is left out
/// decays as strongly, although its decay is not accumulated. Source: Sutskever et al., "On the
/// importance of initialization and momentum", ICML 2013, without Nesterov's correction.
class Sgd final : public Optimizer {
 public:
  Sgd(ParameterSet& parameters, const OptimizerOptions& options);
  void begin_step() override {}
  void update(std::size_t parameter, float lr, float gradient_scale) override;
  void leave_out_momentum(std::size_t parameter) override { momentum_[parameter] = 0.0f; }
  void observe(std::size_t, int) override {}
  void precondition(std::size_t, int) override {}
  bool is_adaptive() const override { return false; }

 private:
  float weight_decay(std::size_t parameter) const;

  OptimizerOptions options_;
  std::vector<float> momentum_;  // by parameter
  std::vector<Tensor> velocity_;
};

}  // namespace kolo::trainer
