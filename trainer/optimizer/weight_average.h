#pragma once

#include <algorithm>
#include <vector>

#include "trainer/checkpoint/state_visitor.h"
#include "trainer/kernels/kernels.h"
#include "trainer/parameter_set.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

/// Running means of all weights. They often generalise better than the weights of the last step.
///
/// After step t, the weights of step s ≤ t have weight (1 - decay) decay^(t-s) in the mean. The
/// decay is at most (1 + t) / (10 + t), so that the mean soon forgets the first weights.
/// Source: Polyak and Juditsky, "Acceleration of Stochastic Approximation by Averaging", 1992; the
///         bound for early steps as in TensorFlow's ExponentialMovingAverage.
///
/// Memory:  one more tensor per parameter.
/// Threads: one. `parameters` outlives this object.
class WeightAverage final : public Stateful {
 public:
  /// Prefix of the names of the means in a checkpoint.
  static constexpr const char* kMeans = "weight_average/";

  /// Begins with the current weights as means. Before: 0 < decay < 1.
  WeightAverage(ParameterSet& parameters, float decay) : parameters_(parameters), decay_(decay) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      means_.emplace_back(parameters[i].shape()).assign(parameters[i].value());
    }
  }

  /// Visits the means. Before: `swap` was called an even number of times.
  void visit_state(StateVisitor& visitor) override {
    visitor.shared("weight_average.steps", steps_);
    for (std::size_t i = 0; i < means_.size(); ++i) {
      visitor.shared(kMeans + parameters_[i].name(), parameters_[i].shape(), means_[i].span());
    }
  }

  /// Updates the means. Call after each step that changed the weights.
  void update() {
    steps_ += 1.0;
    const float decay = std::min(decay_, static_cast<float>((1.0 + steps_) / (10.0 + steps_)));
    for (std::size_t i = 0; i < means_.size(); ++i) {
      scale(means_[i].span(), decay);
      add_scaled(parameters_[i].value(), 1.0f - decay, means_[i].span());
    }
  }

  /// Exchanges the means with the weights, for evaluation; a second call restores both.
  void swap() {
    for (std::size_t i = 0; i < means_.size(); ++i) {
      std::ranges::swap_ranges(means_[i].span(), parameters_[i].value());
    }
  }

 private:
  ParameterSet& parameters_;
  float decay_;
  double steps_ = 0.0;
  std::vector<Tensor> means_;  // means by parameter
};

}  // namespace kolo::trainer
