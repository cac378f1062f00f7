#pragma once

#include <vector>

#include "trainer/kernels/update.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

/// Stochastic gradient descent with momentum, or Nesterov's, and weight decay.
///
/// Momentum makes decay 1 / (1 - momentum) times as strong. A direction that is followed is moved
/// along without momentum, and its parameter decays as strongly. Source: Sutskever et al., "On the
/// importance of initialization and momentum", ICML 2013.
class Sgd final : public Optimizer {
 public:
  static OptimizerEntry entry();

  Sgd(ParameterSet& parameters, const OptimizerOptions& options);
  void visit_state(StateVisitor& visitor) override;
  void begin_step() override {}
  void update(std::size_t parameter, float lr, float gradient_scale) override;
  void follow(std::size_t parameter, float lr, float gradient_scale) override;
  float momentum() const override { return options_.momentum; }

 private:
  void move(std::size_t parameter, const SgdStep& step);

  std::vector<Tensor> velocity_;  // by parameter
};

}  // namespace kolo::trainer
