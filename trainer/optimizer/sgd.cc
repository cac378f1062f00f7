#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "trainer/kernels/kernels.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/tensor.h"

namespace kolo::trainer {
namespace {

/// Stochastic gradient descent with momentum, plain or Nesterov's, and weight decay.
///
/// Momentum makes decay 1 / (1 - momentum) times as strong. `follow` moves a parameter along its
/// direction without momentum, and decays it equally strongly.
class Sgd : public Optimizer {
 public:
  Sgd(ParameterSet& parameters, const OptimizerOptions& options, std::string state = "sgd.velocity")
      : Optimizer(parameters, options), state_(std::move(state)) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      velocity_.push_back(make_state(parameters[i]));
    }
  }
  void visit_state(StateVisitor& visitor) override {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      visit_elements(visitor, state_, parameters_[i], velocity_[i]);
    }
  }
  void begin_step() override {}
  void update(std::size_t index, float lr, float gradient_scale) override {
    move(index, {.lr = lr,
                 .momentum = options_.momentum,
                 .weight_decay = weight_decay(index),
                 .gradient_scale = gradient_scale,
                 .nesterov = options_.nesterov});
  }
  void follow(std::size_t index, float lr, float gradient_scale) override {
    move(index, {.lr = lr,
                 .momentum = 0.0f,
                 .weight_decay = weight_decay(index) / (1.0f - options_.momentum),
                 .gradient_scale = gradient_scale});
  }
  float momentum() const override { return options_.momentum; }

 protected:
  void move(std::size_t index, const SgdStep& step) {
    visit_parts(index, [&](const Part& part) {
      sgd_update(step, part.gradient, part.of(velocity_[index]), part.value);
    });
  }

 private:
  std::string state_;             // name of the velocity in checkpoints
  std::vector<Tensor> velocity_;  // velocities by parameter
};

/// LARS: SGD with momentum, in which a tensor's steps are proportional to the norm of its weights.
/// Tensors without weight decay take SGD's steps. `follow` moves a parameter as SGD does.
///
/// Source: You, Gitman and Ginsburg, "Large Batch Training of Convolutional Networks", 2017.
class Lars final : public Sgd, public TensorNorms {
 public:
  /// Ratio of the norm of a step to the norm of the weights, at learning rate 1.
  static constexpr double kTrust = 0.001;

  Lars(ParameterSet& parameters, const OptimizerOptions& options)
      : Sgd(parameters, options, "lars.velocity") {
    require_no_rows("lars");
  }
  void update(std::size_t index, float lr, float gradient_scale) override {
    apply(index, lr, gradient_scale, add_up(index, parameters_[index].size()));
  }
  TensorNorms* norms() override { return this; }
  void prepare(std::size_t, float) override {}
  Squares squares_of(std::size_t index, ElementRange range) const override {
    if (weight_decay(index) == 0.0f) return {};
    const Parameter& parameter = parameters_[index];
    Squares squares{.of_weights =
                        sum_of_squares(parameter.value().subspan(range.begin, range.count))};
    parameter.visit_averages(
        range, [&](std::span<const float> part) { squares.of_step += sum_of_squares(part); });
    return squares;
  }
  void apply(std::size_t index, float lr, float gradient_scale, const Squares& whole) override {
    const double decay = weight_decay(index);
    double local = 1.0;
    if (decay > 0.0) {
      const double of_weights = std::sqrt(whole.of_weights);
      const double of_gradient = gradient_scale * std::sqrt(whole.of_step);
      const double change = of_gradient + decay * of_weights;
      if (of_weights > 0.0 && change > 0.0) local = kTrust * of_weights / change;
    }
    move(index, {.lr = lr,
                 .momentum = options_.momentum,
                 .weight_decay = static_cast<float>(local * decay),
                 .gradient_scale = static_cast<float>(local * gradient_scale)});
  }
};

}  // namespace

OptimizerEntry sgd_entry() {
  return {.name = "sgd",
          .help = "stochastic gradient descent with momentum",
          .make = make_optimizer_of<Sgd>,
          .reads = {"--momentum", "--nesterov"}};
}

OptimizerEntry lars_entry() {
  return {.name = "lars",
          .help = "SGD with steps that are a share of the weights, for large batches",
          .make = make_optimizer_of<Lars>,
          .reads = {"--momentum"}};
}

}  // namespace kolo::trainer
