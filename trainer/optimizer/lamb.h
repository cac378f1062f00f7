#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "trainer/optimizer/adam_moments.h"
#include "trainer/optimizer/tensor_norms.h"

namespace kolo::trainer {

/// AdamW whose steps are as long as the weights that they change, tensor by tensor, so that large
/// batches may take large learning rates. Tensors without weight decay take the steps of AdamW.
///
/// Source: You et al., "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes",
///         ICLR 2020, algorithm 2, with the identity as scaling function.
class Lamb final : public AdamMoments, public TensorNorms {
 public:
  static OptimizerEntry entry();

  Lamb(ParameterSet& parameters, const OptimizerOptions& options);
  void update(std::size_t parameter, float lr, float gradient_scale) override;
  TensorNorms* norms() override { return this; }
  void prepare(std::size_t parameter, float gradient_scale) override;
  Squares squares_of(std::size_t parameter, ElementRange range) const override;
  void apply(std::size_t parameter, float lr, float gradient_scale, const Squares& whole) override;

 private:
  std::span<float> direction_of(std::size_t parameter);
  std::span<const float> direction_of(std::size_t parameter) const;

  // Of the elements that this rank owns: those of all parameters that ranks share out; the others
  // use the same memory one after the other.
  Tensor directions_;
  std::vector<std::size_t> begins_;  // by parameter
};

}  // namespace kolo::trainer
