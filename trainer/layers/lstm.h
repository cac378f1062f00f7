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

/// The row order of a batch of sequences of different lengths, packed without padding between them.
/// Rows are ordered by step, so that a recurrent layer computes one step of all sequences at once.
/// Within a step they are ordered by descending length, so a sequence has the same index in all
/// steps.
///
///     lengths 2, 4, 1     rows  | 1.0  0.0  2.0 | 1.1  0.1 | 1.2 | 1.3 |  …     as sequence.step
///                         step  |       0       |    1     |  2  |  3  | padding
///
/// The last rows may be padding, which belongs to no sequence.
///
/// Threads: one.
class PackedSequences {
 public:
  /// The number of rows is a positive multiple of kRowBlock. This limits the different numbers of
  /// rows, because oneDNN primitives are created for each of them.
  static constexpr std::size_t kRowBlock = 16;

  /// The range of rows of one step.
  struct Step {
    std::size_t begin;
    std::size_t rows;
  };
  /// The sequence and the step to which a row belongs.
  struct Place {
    std::size_t sequence;
    std::size_t step;
  };

  /// An order for batches of `sequences` sequences of at most `length` steps.
  PackedSequences(std::size_t sequences, std::size_t length);

  /// The largest number of rows of a batch.
  std::size_t capacity() const { return capacity_; }
  std::size_t sequences() const { return lengths_.size(); }

  /// Sets the lengths of a batch's sequences. Before: one length per sequence, in [0, length].
  void assign(std::span<const std::int32_t> lengths);

  std::size_t rows() const;
  /// The sequence and step of each row that is not padding.
  std::span<const Place> places() const { return places_; }
  std::span<const Step> steps() const { return steps_; }
  std::size_t length_of(std::size_t sequence) const { return lengths_[sequence]; }

 private:
  std::size_t capacity_;
  std::vector<std::size_t> lengths_;
  std::vector<std::size_t> order_;  // sequence numbers by descending length
  std::vector<Place> places_;
  std::vector<Step> steps_;
};

/// Long short-term memory over packed sequences. Initial states and cells are zero. The gates of a
/// step are x · Wᵀ + h · Uᵀ + b, where h is the state before it; see `lstm_cells`.
///
/// Shape:  x is [sequences.rows(), inputs], W is [4 · width, inputs], U is [4 · width, width], b is
///         [4 · width], y holds the states, [sequences.rows(), width]. Padding rows of y and of the
///         gradient of x have undefined values.
/// Cost:   one product for the inputs of all steps, and one product per step for the states.
/// Source: see `lstm_cells`.
class Lstm final : public Layer {
 public:
  struct Options {
    std::size_t inputs;
    std::size_t width;
    float deviation;  ///< Standard deviation of initial weights; biases start at zero.
  };

  /// Registers the parameters `name`.input.weight (W), `name`.state.weight (U) and `name`.bias.
  /// `device` and `sequences` outlive the layer. `sequences` is assigned before each forward pass.
  Lstm(Device& device, ParameterSet& parameters, const std::string& name,
       const PackedSequences& sequences, const Options& options);

  std::span<const float> forward(std::span<const float> input, const Pass& pass) override;
  std::span<const float> backward(std::span<const float> output_gradient) override;

 private:
  /// The rows of `step` in `tensor`.
  static std::span<float> rows_of(PackedSequences::Step step, Tensor& tensor);
  /// The cells before a step.
  std::span<const float> cells_before(std::size_t step) const;

  const PackedSequences& sequences_;
  Options options_;
  Products& products_;
  Parameter& input_weight_;
  Parameter& state_weight_;
  Parameter& bias_;
  Tensor gates_;     // [rows, 4 · width]; in the backward pass, their gradients
  Tensor previous_;  // the states before each step
  Tensor cells_, squashed_, output_;
  Tensor initial_cells_;                   // cells before step 0, which are zero
  Tensor state_gradient_, cell_gradient_;  // [sequences, width]
  Tensor input_gradient_;
  WeightFactor input_weight_factor_, state_weight_factor_;
  Factor input_factor_, previous_factor_, gradient_factor_;
  Factor step_factor_;  // the states before a step, or the gradient of its gates
};

/// Computes y[s], the mean of the rows of sequence s, or zero if s has no steps.
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
  /// Returns the gradient of the input, which is zero in padding rows.
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
