#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/checkpoint/state_visitor.h"
#include "trainer/optimizer/tensor_norms.h"
#include "trainer/parameter_set.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

/// Weight decay of the parameters whose names fit a pattern, as the shell's.
struct DecayRule {
  std::string pattern;
  float weight_decay;
};

/// "PATTERN=NUMBER,PATTERN=NUMBER …"; the first that fits counts. Errors: KoloError(kConfig).
std::vector<DecayRule> parse_decay_rules(std::string_view text);

/// The patterns of rules that decide about no parameter.
std::vector<std::string> unused_rules(const std::vector<DecayRule>& rules,
                                      const ParameterSet& parameters);

/// Whether a parameter decays where no rule fits.
inline bool decays(const Parameter& parameter) { return parameter.shape().size() > 1; }

struct OptimizerOptions {
  float momentum = 0.9f;  ///< SGD and LARS.
  bool nesterov = false;  ///< SGD: Nesterov's correction.
  float beta1 = 0.9f;     ///< AdamW and LAMB.
  float beta2 = 0.99f;    ///< AdamW and LAMB.
  float epsilon = 1e-8f;  ///< AdamW and LAMB.
  float weight_decay = 0.0f;
  std::vector<DecayRule> decay_rules = {};
};

/// Turns gradients into new parameter values.
///
/// Matrices and kernels decay; vectors (biases, gains) do not, unless a rule says otherwise.
///
/// Of a parameter that ranks share out (`Parameter::own_shard`), it updates the elements that this
/// rank owns, and has state for these alone.
///
/// Of a table whose gradient is rows, a step changes these rows and their state, and nothing else:
/// the others neither decay nor follow their momentum, and their moments stay as they are. Step
/// counts are those of the optimizer, whichever rows a step has (as in PyTorch's SparseAdam).
class Optimizer : public Stateful {
 public:
  /// How an adaptive optimizer scales gradients: each element by the root of the second moment,
  /// a running mean of squares with decay `beta2`, plus `epsilon`.
  struct Adaptation {
    float beta2;
    float epsilon;
  };

  /// `parameters` outlives it.
  Optimizer(ParameterSet& parameters, const OptimizerOptions& options);
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

  /// In place of `update`: what the gradient's memory holds is a finished direction, which already
  /// has its momentum or its scale. The parameter moves by lr times the direction and decays as
  /// strongly as by `update`. Once followed, a parameter is not updated again.
  virtual void follow(std::size_t parameter, float lr, float gradient_scale) = 0;

  /// Momentum of `update` in front of a plain step; 0 without one.
  virtual float momentum() const { return 0.0f; }

  /// Empty for optimizers that are not adaptive.
  virtual std::optional<Adaptation> adaptation() const { return std::nullopt; }

  /// The part of this optimizer that takes norms of whole tensors; null for those that take none.
  virtual TensorNorms* norms() { return nullptr; }

 protected:
  /// For optimizers that take norms of whole tensors. Errors: KoloError(kConfig) naming a parameter
  /// whose gradient is rows.
  void require_no_rows(std::string_view name) const;

  /// Zeros, one for each element that this rank updates.
  static Tensor make_state(const Parameter& parameter);
  /// Names such a state as that of the whole parameter.
  static void visit_elements(StateVisitor& visitor, std::string_view prefix,
                             const Parameter& parameter, Tensor& state);

  /// Gradients that are there, and what belongs to the same elements.
  struct Part {
    std::span<const float> gradient;
    std::span<float> value;
    std::size_t begin;  ///< In a state.

    std::span<float> of(Tensor& state) const {
      return state.span().subspan(begin, gradient.size());
    }
  };
  /// Calls `use(part)` for all of them.
  template <typename Use>
  void visit_parts(std::size_t index, const Use& use) {
    Parameter& parameter = parameters_[index];
    const std::span<float> value = parameter.value();
    const std::size_t first = parameter.owned().begin;
    parameter.visit_gradient([&](std::size_t begin, std::span<const float> gradient) {
      use(Part{.gradient = gradient,
               .value = value.subspan(begin, gradient.size()),
               .begin = begin - first});
    });
  }

  float weight_decay(std::size_t parameter) const { return weight_decay_[parameter]; }

  ParameterSet& parameters_;
  const OptimizerOptions options_;

 private:
  std::vector<float> weight_decay_;  // by parameter
};

/// A kind of optimizer that --optimizer can name.
struct OptimizerEntry {
  std::string name;
  std::string help;  ///< In a few words.

  /// `parameters` outlive the optimizer.
  std::function<std::unique_ptr<Optimizer>(ParameterSet& parameters,
                                           const OptimizerOptions& options)>
      make;

  /// Options that not every optimizer reads, as "--dropout". One that nothing in a job reads is an
  /// error.
  std::vector<std::string> reads = {};
};

}  // namespace kolo::trainer
