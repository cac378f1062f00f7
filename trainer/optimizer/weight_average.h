#pragma once

#include <vector>

#include "trainer/checkpoint/state_visitor.h"
#include "trainer/parameter_set.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

/// Running means of all weights, which often predict better than the weights themselves.
///
/// The mean of step t gives the weights of step s ≤ t the weight (1 - decay) decay^(t-s), where the
/// decay is at most (1 + t) / (10 + t), so that the first weights are soon forgotten.
/// Source: Polyak and Juditsky, "Acceleration of Stochastic Approximation by Averaging", 1992; the
///         bound for early steps as in TensorFlow's ExponentialMovingAverage.
///
/// Memory:  one more tensor for each parameter.
/// Threads: one. `parameters` outlives it.
class WeightAverage final : public Stateful {
 public:
  /// Prefix of the names of the means in a checkpoint.
  static constexpr const char* kMeans = "weight_average/";

  /// Before: 0 < decay < 1.
  WeightAverage(ParameterSet& parameters, float decay);

  /// Before: not swapped.
  void visit_state(StateVisitor& visitor) override;

  /// After each step that changed the weights.
  void update();

  /// Exchanges the means with the weights, for evaluation; a second call undoes it.
  void swap();

 private:
  ParameterSet& parameters_;
  float decay_;
  double steps_ = 0.0;
  std::vector<Tensor> means_;  // by parameter
};

}  // namespace kolo::trainer
