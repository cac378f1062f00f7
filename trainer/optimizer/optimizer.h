#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trainer/checkpoint/state_visitor.h"
#include "trainer/parameter_set.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

/// The part of an optimizer that uses norms of whole tensors. If tensors are sharded over ranks,
/// the squares of all shards must be added up before the update. For this, call after `begin_step`:
/// `prepare` for every parameter, then `squares_of`, then `apply` with the sums over all ranks.
/// These calls replace `update`.
///
/// If each rank has whole tensors, `update` adds up squares of the same parts in the same order, so
/// its results have the same bits as with shards.
class TensorNorms {
 public:
  struct Squares {
    double of_weights = 0.0;
    double of_step = 0.0;  ///< Sum of squares of the gradient (LARS) or direction (LAMB).

    Squares& operator+=(const Squares& other) {
      of_weights += other.of_weights;
      of_step += other.of_step;
      return *this;
    }
  };
  using Parts = std::function<std::vector<ElementRange>(std::size_t parameter)>;

  virtual ~TensorNorms() = default;

  /// Sets the parts of each parameter, in the order in which `update` adds up their squares. By
  /// default, each parameter is a single part.
  void add_up_by(Parts parts) { parts_ = std::move(parts); }

  /// Prepares `squares_of` for this parameter.
  virtual void prepare(std::size_t parameter, float gradient_scale) = 0;
  /// The sums of squares over `range`, which this rank owns.
  virtual Squares squares_of(std::size_t parameter, ElementRange range) const = 0;
  /// Updates the elements that this rank owns. `whole` has the squares of the whole tensor.
  virtual void apply(std::size_t parameter, float lr, float gradient_scale,
                     const Squares& whole) = 0;

 protected:
  /// The squares of a whole tensor of `size` elements, added up part by part.
  Squares add_up(std::size_t parameter, std::size_t size) const {
    if (!parts_) return squares_of(parameter, {.begin = 0, .count = size});
    Squares whole;
    for (const ElementRange& part : parts_(parameter)) whole += squares_of(parameter, part);
    return whole;
  }

 private:
  Parts parts_;
};

/// The weight decay of parameters whose names match a shell pattern.
struct DecayRule {
  std::string pattern;
  float weight_decay;
};

/// Parses "PATTERN=NUMBER,PATTERN=NUMBER…". The first rule that matches a parameter applies.
/// Errors: KoloError(kConfig).
std::vector<DecayRule> parse_decay_rules(std::string_view text);

/// The patterns of the rules that apply to no parameter.
std::vector<std::string> unused_rules(const std::vector<DecayRule>& rules,
                                      const ParameterSet& parameters);

/// Whether a parameter decays if no rule matches: matrices and kernels do, vectors do not.
inline bool decays(const Parameter& parameter) { return parameter.shape().size() > 1; }

struct OptimizerOptions {
  float momentum = 0.9f;  ///< Momentum of SGD and LARS, in [0, 1).
  bool nesterov = false;  ///< Whether SGD uses Nesterov's correction.
  float beta1 = 0.9f;     ///< Decay of the first moment (AdamW, LAMB), in [0, 1).
  float beta2 = 0.99f;    ///< Decay of the second moment (AdamW, LAMB), in [0, 1).
  float epsilon = 1e-8f;  ///< Added to the root of the second moment (AdamW, LAMB).
  float weight_decay = 0.0f;
  std::vector<DecayRule> decay_rules = {};
};

/// Updates parameters from their gradients.
///
/// Matrices and kernels decay; vectors (biases, gains) do not, unless a rule matches them.
///
/// If a parameter is sharded (`Parameter::own_shard`), the optimizer updates only the elements that
/// this rank owns, and has state only for them.
///
/// If a table has a sparse gradient, a step changes only the rows of the gradient and their state.
/// Other rows do not decay, do not move by momentum, and keep their moments. All rows share the
/// optimizer's step count (as in PyTorch's SparseAdam).
class Optimizer : public Stateful {
 public:
  /// How an adaptive optimizer scales gradients: it divides each element by the root of the second
  /// moment plus `epsilon`. The second moment is a running mean of squares with decay `beta2`.
  struct Adaptation {
    float beta2;
    float epsilon;
  };

  /// `parameters` outlives the optimizer.
  Optimizer(ParameterSet& parameters, const OptimizerOptions& options);
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Performs a step: updates all parameters with their gradients times `gradient_scale`.
  void step(float lr, float gradient_scale) {
    begin_step();
    for (std::size_t i = 0; i < parameters_.size(); ++i) update(i, lr, gradient_scale);
  }

  /// The parts of a step: call `begin_step`, then `update` once per parameter, in any order.
  virtual void begin_step() = 0;
  virtual void update(std::size_t parameter, float lr, float gradient_scale) = 0;

  /// Replaces `update` if the gradient's memory holds a direction, which already includes momentum
  /// or adaptive scale. The parameter moves by lr times the direction, and decays as in `update`.
  /// After `follow`, `update` must not be called for this parameter again.
  virtual void follow(std::size_t parameter, float lr, float gradient_scale) = 0;

  /// The momentum that `update` applies; 0 without momentum.
  virtual float momentum() const { return 0.0f; }

  /// How this optimizer scales gradients; empty if it is not adaptive.
  virtual std::optional<Adaptation> adaptation() const { return std::nullopt; }

  /// The part of this optimizer that uses norms of whole tensors; null if it uses none.
  virtual TensorNorms* norms() { return nullptr; }

 protected:
  /// Checks that no gradient is sparse, for optimizers that use norms of whole tensors. Errors:
  /// KoloError(kConfig) naming a parameter with a sparse gradient.
  void require_no_rows(std::string_view name) const;

  /// Returns a state of zeros, with an element for each element that this rank updates.
  static Tensor make_state(const Parameter& parameter);
  /// Visits a state of `make_state` under `prefix` and the parameter's name.
  static void visit_elements(StateVisitor& visitor, std::string_view prefix,
                             const Parameter& parameter, Tensor& state);

  /// A part of a gradient, with the values of the same elements.
  struct Part {
    std::span<const float> gradient;
    std::span<float> value;
    std::size_t begin;  ///< Index of the part's first element in a state.

    std::span<float> of(Tensor& state) const {
      return state.span().subspan(begin, gradient.size());
    }
  };
  /// Calls `use(part)` for each part of the gradient of parameter `index`.
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
  std::vector<float> weight_decay_;  // weight decay by parameter
};

/// An optimizer that users can choose with --optimizer.
struct OptimizerEntry {
  std::string name;
  std::string help;  ///< Short description for users.

  /// Makes the optimizer. `parameters` outlives it.
  std::function<std::unique_ptr<Optimizer>(ParameterSet& parameters,
                                           const OptimizerOptions& options)>
      make;

  /// Options, such as "--beta1", that this optimizer reads and others may not. Giving an option
  /// that nothing in the job reads is an error.
  std::vector<std::string> reads = {};
};

/// Makes an optimizer of class O; it serves as `OptimizerEntry::make`.
template <typename O>
std::unique_ptr<Optimizer> make_optimizer_of(ParameterSet& parameters,
                                             const OptimizerOptions& options) {
  return std::make_unique<O>(parameters, options);
}

OptimizerEntry sgd_entry();
OptimizerEntry adamw_entry();
OptimizerEntry lars_entry();
OptimizerEntry lamb_entry();

/// The factor 1 / (1 - beta^steps), which corrects the bias of a running mean that starts at zero.
/// Before: steps > 0.
float bias_correction(float beta, std::uint64_t steps);

/// How a learning rate falls: the share that remains at `progress`, which rises from 0 to 1.
using LrFall = double (*)(double progress);

/// A learning-rate schedule that users can choose with --lr-schedule.
struct LrScheduleEntry {
  std::string name;
  std::string help;  ///< Short description for users.
  LrFall fall;
};

LrScheduleEntry cosine_schedule();
LrScheduleEntry linear_schedule();
LrScheduleEntry step_schedule();
LrScheduleEntry constant_schedule();

/// The learning rate by step: a linear rise during `warmup_steps`, then a fall from `peak_lr`
/// towards `final_lr` at the last step.
///
/// Source: Loshchilov and Hutter, "SGDR", ICLR 2017, without restarts, for the cosine.
struct LrSchedule {
  float peak_lr;
  float final_lr;  ///< Learning rate that is reached when `fall` returns 0.
  std::size_t warmup_steps;
  std::size_t total_steps;
  LrFall fall;

  /// The learning rate of a step, counted from 0. Steps after the last have the last step's rate.
  float at(std::size_t step) const;
};

}  // namespace kolo::trainer
