#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "trainer/parameter_set.h"

namespace kolo::trainer {

/// Turns gradients into new parameter values.
///
/// Matrices and kernels decay; vectors (biases, gains) do not.
class Optimizer {
 public:
  /// `parameters` outlives it.
  explicit Optimizer(ParameterSet& parameters) : parameters_(parameters) {}
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Updates all parameters with their gradients, which are first multiplied by `gradient_scale`.
  void step(float lr, float gradient_scale) {
    begin_step();
    for (std::size_t i = 0; i < parameters_.size(); ++i) update(i, lr, gradient_scale);
  }

  /// The same in parts: a step begins; then each parameter is updated once, in any order.
  virtual void begin_step() = 0;
  virtual void update(std::size_t parameter, float lr, float gradient_scale) = 0;

  /// Announces that averages of this parameter, by its index, will already contain momentum.
  /// Before: the optimizer is not adaptive.
  virtual void leave_out_momentum(std::size_t parameter) = 0;

  /// Observes this rank's gradient of a parameter, before it is averaged over `ranks`, because the
  /// parameter will be preconditioned in a later step. Call it in every step until then.
  virtual void observe(std::size_t parameter, int ranks) = 0;

  /// Replaces this rank's gradient of a parameter by the direction of its update, before it is
  /// averaged over `ranks`. The next `step` takes the average as a direction and adds no momentum.
  /// Optimizers that are not adaptive leave the gradient unchanged and take its average as usual.
  virtual void precondition(std::size_t parameter, int ranks) = 0;

  /// True if `precondition` changes the gradient; averages then have no norm to clip.
  virtual bool is_adaptive() const = 0;

 protected:
  ParameterSet& parameters_;
};

inline bool decays(const Parameter& parameter) { return parameter.shape().size() > 1; }

struct OptimizerOptions {
  float momentum = 0.9f;  ///< SGD.
  float beta1 = 0.9f;     ///< AdamW.
  float beta2 = 0.99f;    ///< AdamW.
  float epsilon = 1e-8f;  ///< AdamW.
  float weight_decay = 0.0f;
};

/// "sgd" or "adamw". `parameters` outlives the optimizer.
/// Errors: KoloError(kConfig) naming the choices.
std::unique_ptr<Optimizer> make_optimizer(std::string_view name, ParameterSet& parameters,
                                          const OptimizerOptions& options);

}  // namespace kolo::trainer
