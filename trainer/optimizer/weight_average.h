#pragma once

#include <algorithm>
#include <vector>

#include "trainer/checkpoint/state_visitor.h"
#include "trainer/kernels/kernels.h"
#include "trainer/parameter_set.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

/// Running means of all weights, which often generalise better than the weights themselves.
///
/// After step t, the mean gives the weights of step s ≤ t the weight (1 - decay) decay^(t-s). The
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
  WeightAverage(ParameterSet& parameters, float decay) : parameters_(parameters), decay_(decay) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      means_.emplace_back(parameters[i].shape()).assign(parameters[i].value());
    }
  }

  /// Before: the means are not swapped in.
  void visit_state(StateVisitor& visitor) override {
    visitor.shared("weight_average.steps", steps_);
    for (std::size_t i = 0; i < means_.size(); ++i) {
      visitor.shared(kMeans + parameters_[i].name(), parameters_[i].shape(), means_[i].span());
    }
  }

  /// Call after each step that changed the weights.
  void update() {
    steps_ += 1.0;
    const float decay = std::min(decay_, static_cast<float>((1.0 + steps_) / (10.0 + steps_)));
    for (std::size_t i = 0; i < means_.size(); ++i) {
      scale(means_[i].span(), decay);
      add_scaled(parameters_[i].value(), 1.0f - decay, means_[i].span());
    }
  }

  /// Exchanges the means with the weights, for evaluation; a second call undoes it.
  void swap() {
    for (std::size_t i = 0; i < means_.size(); ++i) {
      std::ranges::swap_ranges(means_[i].span(), parameters_[i].value());
    }
  }

 private:
  ParameterSet& parameters_;
  float decay_;
  double steps_ = 0.0;
  std::vector<Tensor> means_;  // by parameter
};

}  // namespace kolo::trainer
