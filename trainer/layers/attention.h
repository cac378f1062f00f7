#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "trainer/compute/device.h"
#include "trainer/layers/elementwise.h"
#include "trainer/layers/layer.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

/// Scaled dot-product attention within each sequence, per head:
/// y = softmax(Q Kᵀ / sqrt(head_width)) V, over the positions that the mask admits.
///
/// Positions are processed in blocks of rows, each against only the positions that it sees. Weights
/// of long sequences are recomputed in the backward pass; those of short ones are kept. Whole rows
/// fit in memory, so softmax needs no running rescaling:
///
///              causal            lengths: 4
///     block 0   | x . . . . . |    | x x x x . . |      x: computed, in memory while its block is
///     block 1   | x x x . . . |    | x x x x . . |         worked on
///     block 2   | x x x x x x |    | . . . . . . |
///
/// Shape:  the input [sequences · length, 3 · width] holds query, key and value side by side, the
///         output is [sequences · length, width]; head h owns columns h · head_width ….
/// Memory: beside input and output, two blocks of [kBlockRows, length], or four with dropout; kept
///         weights; with `chunk`, the input of all positions.
/// Source: Vaswani et al., "Attention Is All You Need", 2017; recomputation as in Dao et al.,
///         "FlashAttention", NeurIPS 2022.
class SelfAttention final : public Layer {
 public:
  enum class Mask {
    kCausal,   ///< A position sees itself and earlier ones.
    kLengths,  ///< The first length(s) positions of sequence s see each other; the others are
               ///< padding: their outputs and the gradients of their inputs are zero.
  };

  struct Options {
    std::size_t sequences;
    std::size_t length;
    std::size_t width;
    std::size_t heads;  ///< Divides width.
    /// Keep the weights, [length, length] per head and sequence, up to this `length`.
    std::size_t most_kept = 256;
    Mask mask = Mask::kCausal;
    DropoutMask::Options dropout = {};  ///< Dropout of attention weights.
    /// For a single sequence that is computed in several forward passes: most positions of a pass.
    /// A pass follows `Pass::past` earlier positions, whose keys and values are kept.
    std::optional<std::size_t> chunk = {};

    /// Most input rows of a pass.
    std::size_t rows() const { return sequences * chunk.value_or(length); }
  };

  static constexpr std::size_t kBlockRows = 64;

  /// `device` outlives the layer.
  SelfAttention(Device& device, const Options& options);

  /// Sets the lengths of the next sequences, for Mask::kLengths.
  /// Before: each in 0 … length; they stay valid until `backward` returns.
  void set_lengths(std::span<const std::int32_t> lengths);

  std::span<const float> forward(std::span<const float> input, const Pass& pass) override;
  std::span<const float> backward(std::span<const float> output_gradient) override;

 private:
  /// Query, key and value of one head in one sequence, [length, head_width] each.
  struct Head {
    std::size_t index;
    std::size_t sequence;
    std::size_t length;        // of its sequence, without padding and future positions
    std::size_t input_offset;  // of its query in the packed input
    std::size_t output_offset;
  };
  /// Rows [begin, end) of a head.
  struct Range {
    std::size_t begin;
    std::size_t end;

    std::size_t rows() const { return end - begin; }
  };
  /// Rows that are processed together, and how many positions they see.
  struct Block {
    std::size_t begin;
    std::size_t end;
    std::size_t seen;

    Range range() const { return {begin, end}; }
    std::size_t rows() const { return end - begin; }
  };
  enum Part : std::size_t { kQuery, kKey, kValue };

  /// Calls visit(head) for every head of every sequence.
  template <typename Visit>
  void for_heads(const Visit& visit) const;
  std::size_t length_of(std::size_t sequence) const;
  Block block_from(const Head& head, std::size_t begin) const;
  /// Zeros the padding. `rows` are the rows of all sequences.
  void clear_padding(std::span<float> rows) const;
  /// Offset of the first of these rows in the packed input, in elements.
  std::size_t offset_of(const Head& head, Part part, Range rows) const;
  Operand rows_of(const Head& head, Part part, Range rows) const;
  Matrix gradient_rows(const Head& head, Part part, Range rows);
  Sees sees() const { return options_.mask == Mask::kCausal ? Sees::kEarlier : Sees::kAll; }
  bool keeps_weights() const { return options_.length <= options_.most_kept && !options_.chunk; }
  /// The packed input of all positions up to the end of `now`, the positions of this pass.
  std::span<const float> with_past(std::span<const float> input, Range now);
  /// Memory for the weights of a block's rows, [rows, block.seen].
  std::span<float> weights_of(const Head& head, Block block);
  void weigh(const Head& head, Block block);
  /// Draws which weights of a block drop out, and makes the remaining weights an operand of
  /// products.
  void assign_weights(const Head& head, Block block);
  void backward(const Head& head, Block block);

  Options options_;
  std::size_t head_width_;
  float factor_;
  Products& products_;
  std::span<const std::int32_t> lengths_;
  DropoutMask dropout_;
  Tensor past_;  // with `chunk`: the packed input of all positions
  Tensor output_;
  Tensor input_gradient_;
  Tensor weights_;         // of all heads if they are kept, else of one block
  Tensor score_gradient_;  // of one block
  Tensor kept_factors_;    // dropout factors of one block's weights
  Tensor dropped_;         // one block's weights after dropout
  Factor input_factor_, gradient_factor_;
  Factor block_factor_;  // weights of one block, then the gradient of its scores
};

/// Rotates queries and keys by angles that grow with their position, so that their products depend
/// on the distance of two positions: at position p, pair i of a head's n pairs rotates by
/// p / 10000^(i / n).
///
/// Element i forms a pair with element i + n. Pairs of neighbours, as in the source, would be
/// equivalent, with the rows of the query and key weights in another order.
///
/// Shape:  x and y are [sequences · length, 3 · width] with query, key and value side by side, as
///         `SelfAttention` takes them; values are copied unchanged.
/// Before: a head has an even width.
/// Source: Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021; pairs
///         as in Black et al., "GPT-NeoX-20B", 2022.
class RotaryPositions final : public Layer {
 public:
  explicit RotaryPositions(const SelfAttention::Options& options);

  std::span<const float> forward(std::span<const float> input, const Pass& pass) override;
  std::span<const float> backward(std::span<const float> output_gradient) override;

 private:
  void rotate(std::span<const float> from, std::size_t past, const Tensor& sines,
              std::span<float> to) const;

  SelfAttention::Options options_;
  Tensor cosines_;         // [length, n]
  Tensor sines_;           // [length, n]
  Tensor opposite_sines_;  // of the opposite angles, for the backward pass
  Tensor output_;
  Tensor input_gradient_;
};

}  // namespace kolo::trainer
