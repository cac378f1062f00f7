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
  virtual ~Optimizer() = default;

  /// One update of all parameters with their gradients, multiplied by `gradient_scale` first.
  virtual void step(float lr, float gradient_scale) = 0;

  /// The averages of this parameter, by its place in the set, will have their momentum already.
  /// Before: not adaptive.
  virtual void leave_out_momentum(std::size_t parameter) = 0;

  /// Looks at this rank's gradient of a parameter, which is about to be averaged over `ranks`: from
  /// a later step on it is to be preconditioned. To be called in every step until then.
  virtual void observe(std::size_t parameter, int ranks) = 0;

  /// Turns this rank's gradient of a parameter into the direction that the parameter is to go,
  /// before it is averaged over `ranks`; the next `step` takes the average for one, and adds no
  /// momentum. What is not adaptive leaves the gradient as it is, and takes its average like any
  /// other.
  virtual void precondition(std::size_t parameter, int ranks) = 0;

  /// Whether `precondition` changes the gradient: averages then have no norm that could be clipped.
  virtual bool is_adaptive() const = 0;
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
