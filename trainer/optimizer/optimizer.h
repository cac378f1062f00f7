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

  /// The gradients of this parameter, by its place in the set, have their momentum already.
  /// Errors: KoloError(kConfig) from an optimizer that cannot do without.
  virtual void leave_out_momentum(std::size_t parameter) = 0;
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
