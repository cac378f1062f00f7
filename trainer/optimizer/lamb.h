#pragma once

#include "trainer/optimizer/adam_moments.h"

namespace kolo::trainer {

/// AdamW whose steps are as long as the weights that they change, tensor by tensor, so that large
/// batches may take large learning rates. Tensors without weight decay take the steps of AdamW.
///
/// Source: You et al., "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes",
///         ICLR 2020, algorithm 2, with the identity as scaling function.
class Lamb final : public AdamMoments {
 public:
  static OptimizerEntry entry();

  Lamb(ParameterSet& parameters, const OptimizerOptions& options);
  void update(std::size_t parameter, float lr, float gradient_scale) override;

 private:
  Tensor direction_;  // of one parameter; as large as the largest
};

}  // namespace kolo::trainer
