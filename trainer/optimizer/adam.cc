#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "trainer/kernels/kernels.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/tensor.h"

namespace kolo::trainer {
namespace {

/// The base class of Adam variants, with two moments of each parameter and the number of steps.
///
/// `follow` moves a parameter along its direction, and decays it as AdamW does.
class AdamMoments : public Optimizer {
 public:
  AdamMoments(ParameterSet& parameters, const OptimizerOptions& options)
      : Optimizer(parameters, options) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      first_moment_.push_back(make_state(parameters[i]));
      second_moment_.push_back(make_state(parameters[i]));
    }
  }
  void visit_state(StateVisitor& visitor) override {
    visitor.shared("adam.steps", steps_);
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      visit_elements(visitor, "adam.first_moment", parameters_[i], first_moment_[i]);
      visit_elements(visitor, "adam.second_moment", parameters_[i], second_moment_[i]);
    }
  }
  void begin_step() override { ++steps_; }
  void follow(std::size_t index, float lr, float gradient_scale) override {
    Parameter& parameter = parameters_[index];
    // A followed parameter's first moment is never read again, so its memory serves as velocity.
    sgd_update({.lr = lr,
                .momentum = 0.0f,
                .weight_decay = weight_decay(index),
                .gradient_scale = gradient_scale},
               parameter.gradient(), first_moment_[index].span(), parameter.value());
  }
  std::optional<Adaptation> adaptation() const override {
    return Adaptation{.beta2 = options_.beta2, .epsilon = options_.epsilon};
  }

 protected:
  /// The AdamW settings of a parameter in the current step.
  AdamWStep step_of(std::size_t index, float lr, float gradient_scale) const {
    return {.lr = lr,
            .beta1 = options_.beta1,
            .beta2 = options_.beta2,
            .epsilon = options_.epsilon,
            .weight_decay = weight_decay(index),
            .bias_correction1 = bias_correction(options_.beta1, steps_),
            .bias_correction2 = bias_correction(options_.beta2, steps_),
            .gradient_scale = gradient_scale};
  }

  std::vector<Tensor> first_moment_, second_moment_;  // moments by parameter

 private:
  std::uint64_t steps_ = 0;
};

/// Adam with decoupled weight decay.
///
/// Source: Loshchilov and Hutter, "Decoupled Weight Decay Regularization", ICLR 2019.
class AdamW final : public AdamMoments {
 public:
  using AdamMoments::AdamMoments;
  void update(std::size_t index, float lr, float gradient_scale) override {
    const AdamWStep step = step_of(index, lr, gradient_scale);
    visit_parts(index, [&](const Part& part) {
      adamw_update(step, part.gradient, part.of(first_moment_[index]),
                   part.of(second_moment_[index]), part.value);
    });
  }
};

/// LAMB: AdamW in which a tensor's step is as long as its weights, times the learning rate, so that
/// large batches may use large learning rates. Tensors without weight decay take AdamW's steps.
///
/// Source: You et al., "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes",
///         ICLR 2020, algorithm 2, with the identity as scaling function.
class Lamb final : public AdamMoments, public TensorNorms {
 public:
  Lamb(ParameterSet& parameters, const OptimizerOptions& options)
      : AdamMoments(parameters, options) {
    require_no_rows("lamb");
    std::size_t sharded = 0, largest = 0;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const std::size_t owned = parameters[i].owned().count;
      const bool is_sharded = parameters[i].is_sharded();
      begins_.push_back(is_sharded ? sharded : 0);
      if (is_sharded) sharded += owned;
      largest = std::max(largest, owned);
    }
    directions_ = Tensor({std::max(sharded, largest)});
  }
  void update(std::size_t index, float lr, float gradient_scale) override {
    prepare(index, gradient_scale);
    apply(index, lr, gradient_scale, add_up(index, parameters_[index].size()));
  }
  TensorNorms* norms() override { return this; }
  void prepare(std::size_t index, float gradient_scale) override {
    const AdamWStep step = step_of(index, 0.0f, gradient_scale);  // directions do not depend on lr
    visit_parts(index, [&](const Part& part) {
      const auto direction = direction_of(index).subspan(part.begin, part.gradient.size());
      std::ranges::copy(part.gradient, direction.begin());
      adamw_direction(step, direction, part.of(first_moment_[index]),
                      part.of(second_moment_[index]), part.value);
    });
  }
  Squares squares_of(std::size_t index, ElementRange range) const override {
    if (weight_decay(index) == 0.0f) return {};
    const Parameter& parameter = parameters_[index];
    const auto direction =
        direction_of(index).subspan(range.begin - parameter.owned().begin, range.count);
    return {.of_weights = sum_of_squares(parameter.value().subspan(range.begin, range.count)),
            .of_step = sum_of_squares(direction)};
  }
  void apply(std::size_t index, float lr, float, const Squares& whole) override {
    double trust = 1.0;
    if (weight_decay(index) > 0.0f) {
      const double of_weights = std::sqrt(whole.of_weights);
      const double of_direction = std::sqrt(whole.of_step);
      if (of_weights > 0.0 && of_direction > 0.0) trust = of_weights / of_direction;
    }
    Parameter& parameter = parameters_[index];
    const ElementRange owned = parameter.owned();
    add_scaled(direction_of(index), static_cast<float>(-lr * trust),
               parameter.value().subspan(owned.begin, owned.count));
  }

 private:
  std::span<float> direction_of(std::size_t index) {
    return directions_.span().subspan(begins_[index], parameters_[index].owned().count);
  }
  std::span<const float> direction_of(std::size_t index) const {
    return directions_.span().subspan(begins_[index], parameters_[index].owned().count);
  }

  // Directions of the elements that this rank owns. Sharded parameters have separate ranges; other
  // parameters use the same memory one after the other.
  Tensor directions_;
  std::vector<std::size_t> begins_;  // offsets in `directions_` by parameter
};

}  // namespace

float bias_correction(float beta, std::uint64_t steps) {
  return static_cast<float>(
      1.0 / (1.0 - std::pow(static_cast<double>(beta), static_cast<double>(steps))));
}

OptimizerEntry adamw_entry() {
  return {.name = "adamw",
          .help = "Adam with decoupled weight decay",
          .make = make_optimizer_of<AdamW>,
          .reads = {"--beta1", "--beta2", "--epsilon"}};
}

OptimizerEntry lamb_entry() {
  return {.name = "lamb",
          .help = "AdamW with steps as long as the weights, for large batches",
          .make = make_optimizer_of<Lamb>,
          .reads = {"--beta1", "--beta2", "--epsilon"}};
}

}  // namespace kolo::trainer
