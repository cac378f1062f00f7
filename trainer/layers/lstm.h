#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/compute/device.h"
#include "trainer/layers/layer.h"
#include "trainer/parameter_set.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

/// Row order of a batch of sequences of different lengths without padding between them. Rows are
/// ordered by step, so that a recurrent layer computes one step of all sequences at once, and
/// within a step by descending length, so that the sequences that go on are the first rows of the
/// previous step.
///
///     lengths 2, 4, 1     rows  | 1.0  0.0  2.0 | 1.1  0.1 | 1.2 | 1.3 |  …     as sequence.step
///                         step  |       0       |    1     |  2  |  3  | padding
///
/// The last rows may be padding, which belongs to no sequence.
///
/// Threads: one.
class PackedSequences {
 public:
  /// The number of rows is a positive multiple of this. That limits how many different numbers of
  /// rows occur, for each of which oneDNN primitives are created.
  static constexpr std::size_t kRowBlock = 16;

  /// The rows of one step.
  struct Step {
    std::size_t begin;
    std::size_t rows;
  };
  /// The sequence and step of a row.
  struct Place {
    std::size_t sequence;
    std::size_t step;
  };

  /// For batches of `sequences` sequences of at most `length` steps.
  PackedSequences(std::size_t sequences, std::size_t length);

  /// Most rows of a batch.
  std::size_t capacity() const { return capacity_; }
  std::size_t sequences() const { return lengths_.size(); }

  /// Before: as many lengths as sequences, each in 0 … length.
  void assign(std::span<const std::int32_t> lengths);

  std::size_t rows() const;
  /// Sequence and step of each row that is not padding.
  std::span<const Place> places() const { return places_; }
  std::span<const Step> steps() const { return steps_; }
  std::size_t length_of(std::size_t sequence) const { return lengths_[sequence]; }

 private:
  std::size_t capacity_;
  std::vector<std::size_t> lengths_;
  std::vector<std::size_t> order_;  // sequences by descending length
  std::vector<Place> places_;
  std::vector<Step> steps_;
};

/// Long short-term memory over packed sequences, whose initial states and cells are zero. With h
/// the state before a step, its gates are x · Wᵀ + h · Uᵀ + b; see `lstm_cells`.
///
/// Shape:  x is [sequences.rows(), inputs], W is [4 · width, inputs], U is [4 · width, width], b is
///         [4 · width], y holds the states, [sequences.rows(), width]. The last rows of y and of
///         the gradient of x may be padding, whose values have no meaning.
/// Cost:   one product for the inputs of all steps, and one of the states per step.
/// Source: see `lstm_cells`.
class Lstm final : public Layer {
 public:
  struct Options {
    std::size_t inputs;
    std::size_t width;
    float deviation;  ///< Deviation of initial weights; biases start at zero.
  };

  /// Registers `name`.input.weight (W), `name`.state.weight (U) and `name`.bias. `device` and
  /// `sequences` outlive the layer; `sequences` is assigned before each forward pass.
  Lstm(Device& device, ParameterSet& parameters, const std::string& name,
       const PackedSequences& sequences, const Options& options);

  std::span<const float> forward(std::span<const float> input, const Pass& pass) override;
  std::span<const float> backward(std::span<const float> output_gradient) override;

 private:
  /// The rows of one step in `tensor`.
  static std::span<float> rows_of(PackedSequences::Step step, Tensor& tensor);
  /// The cells before a step.
  std::span<const float> cells_before(std::size_t step) const;

  const PackedSequences& sequences_;
  Options options_;
  Products& products_;
  Parameter& input_weight_;
  Parameter& state_weight_;
  Parameter& bias_;
  Tensor gates_;     // [rows, 4 · width]; holds their gradients in the backward pass
  Tensor previous_;  // states before each step
  Tensor cells_, squashed_, output_;
  Tensor initial_cells_;                   // zeros
  Tensor state_gradient_, cell_gradient_;  // [sequences, width]
  Tensor input_gradient_;
  WeightFactor input_weight_factor_, state_weight_factor_;
  Factor input_factor_, previous_factor_, gradient_factor_;
  Factor step_factor_;  // states before a step, or the gradient of its gates
};

/// y[s] is the mean of the rows of sequence s, or zero if s has no steps.
///
/// Shape: x is [sequences.rows(), width], y is [sequences.sequences(), width].
class SequenceMean final : public Layer {
 public:
  /// `sequences` outlives the layer.
  SequenceMean(const PackedSequences& sequences, std::size_t width)
      : sequences_(sequences),
        width_(width),
        output_({sequences.sequences(), width}),
        input_gradient_({sequences.capacity(), width}) {}

  std::span<const float> forward(std::span<const float> input, const Pass& pass) override;
  /// The gradient of padding rows is zero.
  std::span<const float> backward(std::span<const float> output_gradient) override;

 private:
  float share_of_a_row(std::size_t sequence) const {
    return 1.0f / static_cast<float>(sequences_.length_of(sequence));
  }

  const PackedSequences& sequences_;
  std::size_t width_;
  Tensor output_;
  Tensor input_gradient_;
};

}  // namespace kolo::trainer
