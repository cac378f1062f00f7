#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "trainer/compute/factor.h"
#include "trainer/layers/layer.h"
#include "trainer/layers/packed_sequences.h"
#include "trainer/layers/weight_factor.h"
#include "trainer/parameter_set.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

/// Long short-term memory over packed sequences, each of which starts with a state and a cell of
/// zero. With h the state before a step, its gates are x · Wᵀ + h · Uᵀ + b; see `lstm_cells`.
///
/// Shape:  x is [sequences.rows(), inputs], W is [4 · width, inputs], U is [4 · width, width], b is
///         [4 · width], y holds the states, [sequences.rows(), width]. The last rows of y and of
///         the gradient of x may be padding, whose values have no meaning.
/// Cost:   one product for the inputs of all steps, and one of the states per step.
/// Source: as `lstm_cells`.
class Lstm final : public Layer {
 public:
  struct Options {
    std::size_t inputs;
    std::size_t width;
    float deviation;  ///< Deviation of initial weights; biases start at zero.
  };

  /// Registers `name`.input.weight (W), `name`.state.weight (U) and `name`.bias. `device` and
  /// `sequences` outlive the layer; the latter is assigned before each forward pass.
  Lstm(Device& device, ParameterSet& parameters, const std::string& name,
       const PackedSequences& sequences, const Options& options);

  std::span<const float> forward(std::span<const float> input, const Pass& pass) override;
  std::span<const float> backward(std::span<const float> output_gradient) override;

 private:
  /// The rows of a step in a tensor whose rows have `width` elements.
  static std::span<float> rows_of(PackedSequences::Step step, Tensor& tensor);
  /// The cells before a step.
  std::span<const float> cells_before(std::size_t step) const;

  const PackedSequences& sequences_;
  Options options_;
  Products& products_;
  Parameter& input_weight_;
  Parameter& state_weight_;
  Parameter& bias_;
  Tensor gates_;     // [rows, 4 · width], in the backward pass their gradients
  Tensor previous_;  // states before each step
  Tensor cells_, squashed_, output_;
  Tensor initial_cells_;                   // zeros
  Tensor state_gradient_, cell_gradient_;  // [sequences, width], of the step before
  Tensor input_gradient_;
  WeightFactor input_weight_factor_, state_weight_factor_;
  Factor input_factor_, previous_factor_, gradient_factor_;
  Factor step_factor_;  // states before a step, or the gradient of its gates
};

}  // namespace kolo::trainer
