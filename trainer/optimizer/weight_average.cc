#include "trainer/optimizer/weight_average.h"

#include <algorithm>

#include "trainer/kernels/vector.h"

namespace kolo::trainer {

WeightAverage::WeightAverage(ParameterSet& parameters, float decay)
    : parameters_(parameters), decay_(decay) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    means_.emplace_back(parameters[i].shape()).assign(parameters[i].value());
  }
}

void WeightAverage::visit_state(StateVisitor& visitor) {
  visitor.shared("weight_average.steps", steps_);
  for (std::size_t i = 0; i < means_.size(); ++i) {
    visitor.shared(kMeans + parameters_[i].name(), parameters_[i].shape(), means_[i].span());
  }
}

void WeightAverage::update() {
  steps_ += 1.0;
  const float decay = std::min(decay_, static_cast<float>((1.0 + steps_) / (10.0 + steps_)));
  for (std::size_t i = 0; i < means_.size(); ++i) {
    scale(means_[i].span(), decay);
    add_scaled(parameters_[i].value(), 1.0f - decay, means_[i].span());
  }
}

void WeightAverage::swap() {
  for (std::size_t i = 0; i < means_.size(); ++i) {
    std::ranges::swap_ranges(means_[i].span(), parameters_[i].value());
  }
}

}  // namespace kolo::trainer
