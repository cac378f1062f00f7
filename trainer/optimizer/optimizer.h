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

/// The part of an optimizer that uses norms of whole tensors. If tensors are sharded over ranks, a
/// step adds up the squares of all shards: after `begin_step`, call `prepare` for every parameter,
/// then `squares_of`, then `apply` with the sums over all ranks, in place of `update`.
///
/// Ranks with whole tensors add up the squares of the same parts in the same order, so that their
/// `update` has the same bits as with shards.
class TensorNorms {
 public:
  struct Squares {
    double of_weights = 0.0;
    double of_step = 0.0;  ///< Over the direction or gradient that is compared to the weights.

    Squares& operator+=(const Squares& other) {
      of_weights += other.of_weights;
      of_step += other.of_step;
      return *this;
    }
  };
  using Parts = std::function<std::vector<ElementRange>(std::size_t parameter)>;

  virtual ~TensorNorms() = default;

  /// Sets the parts of each parameter, in the order in which `update` adds up their squares. By
  /// default, a parameter is one part.
  void add_up_by(Parts parts) { parts_ = std::move(parts); }

  /// Computes what `squares_of` needs.
  virtual void prepare(std::size_t parameter, float gradient_scale) = 0;
  /// The squares of elements that this rank owns.
  virtual Squares squares_of(std::size_t parameter, ElementRange range) const = 0;
  /// Updates the elements that this rank owns, given the squares of the whole tensor.
  virtual void apply(std::size_t parameter, float lr, float gradient_scale,
                     const Squares& whole) = 0;

 protected:
  /// The squares of a tensor of `size` elements, all owned by this rank, part by part.
  Squares add_up(std::size_t parameter, std::size_t size) const {
    if (!parts_) return squares_of(parameter, {.begin = 0, .count = size});
    Squares whole;
    for (const ElementRange& part : parts_(parameter)) whole += squares_of(parameter, part);
    return whole;
  }

 private:
  Parts parts_;
};

/// Weight decay of the parameters whose names match a shell pattern.
struct DecayRule {
  std::string pattern;
  float weight_decay;
};

/// Parses "PATTERN=NUMBER,PATTERN=NUMBER …"; the first match applies. Errors: KoloError(kConfig).
std::vector<DecayRule> parse_decay_rules(std::string_view text);

/// The patterns of rules that apply to no parameter.
std::vector<std::string> unused_rules(const std::vector<DecayRule>& rules,
                                      const ParameterSet& parameters);

/// Whether a parameter decays if no rule matches.
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
/// If a parameter is sharded (`Parameter::own_shard`), the optimizer updates only the elements that
/// this rank owns, and has state only for these.
///
/// If a table's gradient is rows, a step changes only these rows and their state: other rows
/// neither decay nor follow their momentum, and their moments stay as they are. Step counts are
/// those of the optimizer, whichever rows a step has (as in PyTorch's SparseAdam).
class Optimizer : public Stateful {
 public:
  /// How an adaptive optimizer scales gradients: each element by the root of the second moment,
  /// a running mean of squares with decay `beta2`, plus `epsilon`.
  struct Adaptation {
    float beta2;
    float epsilon;
  };

  /// `parameters` outlives the optimizer.
  Optimizer(ParameterSet& parameters, const OptimizerOptions& options);
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Updates all parameters with their gradients times `gradient_scale`.
  void step(float lr, float gradient_scale) {
    begin_step();
    for (std::size_t i = 0; i < parameters_.size(); ++i) update(i, lr, gradient_scale);
  }

  /// A step in parts: `begin_step`, then one `update` per parameter, in any order.
  virtual void begin_step() = 0;
  virtual void update(std::size_t parameter, float lr, float gradient_scale) = 0;

  /// Replaces `update` if the gradient's memory holds a finished direction, which already includes
  /// momentum or adaptive scale. The parameter moves by lr times the direction and decays as much
  /// as in `update`. Once followed, a parameter must not be updated again.
  virtual void follow(std::size_t parameter, float lr, float gradient_scale) = 0;

  /// Momentum that `update` applies before a plain SGD step; 0 without momentum.
  virtual float momentum() const { return 0.0f; }

  /// Empty for optimizers that are not adaptive.
  virtual std::optional<Adaptation> adaptation() const { return std::nullopt; }

  /// The part of this optimizer that uses norms of whole tensors; null if it uses none.
  virtual TensorNorms* norms() { return nullptr; }

 protected:
  /// For optimizers that use norms of whole tensors. Errors: KoloError(kConfig) naming a parameter
  /// whose gradient is rows.
  void require_no_rows(std::string_view name) const;

  /// Zeros, one for each element that this rank updates.
  static Tensor make_state(const Parameter& parameter);
  /// Visits such a state under the name of the whole parameter.
  static void visit_elements(StateVisitor& visitor, std::string_view prefix,
                             const Parameter& parameter, Tensor& state);

  /// A part of the gradient and the matching values and state.
  struct Part {
    std::span<const float> gradient;
    std::span<float> value;
    std::size_t begin;  ///< Index of the first element in a state.

    std::span<float> of(Tensor& state) const {
      return state.span().subspan(begin, gradient.size());
    }
  };
  /// Calls `use(part)` for each part of the gradient.
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

/// An optimizer that --optimizer can name.
struct OptimizerEntry {
  std::string name;
  std::string help;  ///< A short description.

  /// `parameters` outlive the optimizer.
  std::function<std::unique_ptr<Optimizer>(ParameterSet& parameters,
                                           const OptimizerOptions& options)>
      make;

  /// Options, such as "--beta1", that only some optimizers read. It is an error to give an option
  /// that nothing in the job reads.
  std::vector<std::string> reads = {};
};

/// An `OptimizerEntry::make` for a class with this constructor.
template <typename O>
std::unique_ptr<Optimizer> make_optimizer_of(ParameterSet& parameters,
                                             const OptimizerOptions& options) {
  return std::make_unique<O>(parameters, options);
}

OptimizerEntry sgd_entry();
OptimizerEntry adamw_entry();
OptimizerEntry lars_entry();
OptimizerEntry lamb_entry();

/// 1 / (1 - beta^steps), which corrects the bias of a running mean that starts at zero. Before:
/// steps > 0.
float bias_correction(float beta, std::uint64_t steps);

/// Decay of a learning rate: the remaining share, from 1 at `progress` 0 to 0 at 1.
using LrFall = double (*)(double progress);

/// A learning-rate schedule that --lr-schedule can name.
struct LrScheduleEntry {
  std::string name;
  std::string help;  ///< A short description.
  LrFall fall;
};

LrScheduleEntry cosine_schedule();
LrScheduleEntry linear_schedule();
LrScheduleEntry step_schedule();
LrScheduleEntry constant_schedule();

/// Learning rate by step: a linear rise over `warmup_steps`, then a fall down to `final_lr` at the
/// last step.
///
/// Source: Loshchilov and Hutter, "SGDR", ICLR 2017, without restarts, for the cosine.
struct LrSchedule {
  float peak_lr;
  float final_lr;  ///< Learning rate at the end of the decay.
  std::size_t warmup_steps;
  std::size_t total_steps;
  LrFall fall;

  /// Step 0 is the first; steps after the last have the last step's rate.
  float at(std::size_t step) const;
};

}  // namespace kolo::trainer
