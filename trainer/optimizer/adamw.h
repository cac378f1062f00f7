#pragma once

#include "trainer/optimizer/adam_moments.h"

namespace kolo::trainer {

/// Adam with decoupled weight decay.
///
/// Source: Loshchilov and Hutter, "Decoupled Weight Decay Regularization", ICLR 2019.
class AdamW final : public AdamMoments {
 public:
  static OptimizerEntry entry();

  using AdamMoments::AdamMoments;
  void update(std::size_t parameter, float lr, float gradient_scale) override;
};

}  // namespace kolo::trainer
