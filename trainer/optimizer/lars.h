#pragma once

#include <vector>

#include "trainer/optimizer/optimizer.h"
#include "trainer/optimizer/tensor_norms.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

/// SGD with momentum whose steps are a share of the weights that they change, tensor by tensor.
/// Tensors without weight decay take the steps of SGD. A direction that is followed moves a
/// parameter as by SGD.
///
/// Source: You, Gitman and Ginsburg, "Large Batch Training of Convolutional Networks", 2017.
class Lars final : public Optimizer, public TensorNorms {
 public:
  /// Share of the norm of the weights that a step with learning rate 1 has.
  static constexpr double kTrust = 0.001;

  static OptimizerEntry entry();

  Lars(ParameterSet& parameters, const OptimizerOptions& options);
  void visit_state(StateVisitor& visitor) override;
  void begin_step() override {}
  void update(std::size_t parameter, float lr, float gradient_scale) override;
  TensorNorms* norms() override { return this; }
  void prepare(std::size_t, float) override {}
  Squares squares_of(std::size_t parameter, ElementRange range) const override;
  void apply(std::size_t parameter, float lr, float gradient_scale, const Squares& whole) override;
  void follow(std::size_t parameter, float lr, float gradient_scale) override;
  float momentum() const override { return options_.momentum; }

 private:
  std::vector<Tensor> velocity_;  // by parameter
};

}  // namespace kolo::trainer
