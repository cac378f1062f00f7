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

/// Scaled dot-product attention within each sequence, computed per head: y = softmax(Q Kᵀ /
/// sqrt(head_width)) V, over the positions that the mask admits.
///
/// Positions are processed in blocks of rows; a block computes only the weights of positions that
/// it sees. A block's rows are complete, so softmax needs no running rescaling. The backward pass
/// recomputes the weights of long sequences and reuses those of short ones:
///
///              causal            lengths: 4
///     block 0   | x . . . . . |    | x x x x . . |      x: computed, and in memory while
///     block 1   | x x x . . . |    | x x x x . . |         its block is processed
///     block 2   | x x x x x x |    | . . . . . . |
///
/// Shape:  the input is [sequences · length, 3 · width], with query, key and value side by side;
///         the output is [sequences · length, width]. Head h has head_width columns of each, from h
///         · head_width on.
/// Memory: two blocks of [kBlockRows, length], or four with dropout; the kept weights; with
///         `chunk`, the input of all positions.
/// Source: Vaswani et al., "Attention Is All You Need", 2017; recomputation as in Dao et al.,
///         "FlashAttention", NeurIPS 2022.
class SelfAttention final : public Layer {
 public:
  enum class Mask {
    kCausal,   ///< A position sees itself and earlier positions.
    kLengths,  ///< The first lengths[s] positions of sequence s see each other. The others are
               ///< padding, whose outputs and input gradients are zero.
  };

  struct Options {
    std::size_t sequences;
    std::size_t length;
    std::size_t width;
    std::size_t heads;           ///< Number of heads of this rank, a divisor of width.
    std::size_t first_head = 0;  ///< Index in the whole layer of this rank's first head.
    /// Largest `length` for which weights, [length, length] per head and sequence, are kept.
    std::size_t most_kept = 256;
    Mask mask = Mask::kCausal;
    DropoutMask::Options dropout = {};  ///< Dropout of attention weights.
    /// Set if a single sequence is computed in several forward passes: the largest number of
    /// positions per pass. Keys and values of the `Pass::past` earlier positions are kept.
    std::optional<std::size_t> chunk = {};

    /// Largest number of input rows of a pass.
    std::size_t rows() const { return sequences * chunk.value_or(length); }
  };

  static constexpr std::size_t kBlockRows = 64;

  /// `device` outlives the layer.
  SelfAttention(Device& device, const Options& options);

  /// Sets the lengths of the sequences of the next pass, for Mask::kLengths.
  /// Before: each length is in [0, length]; `lengths` stays valid until `backward` returns.
  void set_lengths(std::span<const std::int32_t> lengths);

  std::span<const float> forward(std::span<const float> input, const Pass& pass) override;
  std::span<const float> backward(std::span<const float> output_gradient) override;

 private:
  /// One head of one sequence; its query, key and value are [length, head_width] each.
  struct Head {
    std::size_t index;
    std::size_t sequence;
    std::size_t length;        // positions of the sequence without padding and future positions
    std::size_t input_offset;  // offset of its query in the packed input, in elements
    std::size_t output_offset;
  };
  /// The rows [begin, end) of a head.
  struct Range {
    std::size_t begin;
    std::size_t end;

    std::size_t rows() const { return end - begin; }
  };
  /// The rows [begin, end) that are processed together, and the number of positions that they see.
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
  /// Sets the padding to zero in `rows`, the rows of all sequences.
  void clear_padding(std::span<float> rows) const;
  /// The offset of the first of `rows` in the packed input, in elements.
  std::size_t offset_of(const Head& head, Part part, Range rows) const;
  Operand rows_of(const Head& head, Part part, Range rows) const;
  Matrix gradient_rows(const Head& head, Part part, Range rows);
  Sees sees() const { return options_.mask == Mask::kCausal ? Sees::kEarlier : Sees::kAll; }
  bool keeps_weights() const { return options_.length <= options_.most_kept && !options_.chunk; }
  /// The packed input of all positions up to the end of `now`, the positions of this pass.
  std::span<const float> with_past(std::span<const float> input, Range now);
  /// The memory for the weights of a block, [rows, block.seen].
  std::span<float> weights_of(const Head& head, Block block);
  void weigh(const Head& head, Block block);
  /// Makes the weights of a block, after dropout, the operand `block_factor_`.
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
  Tensor weights_;         // weights of all heads if they are kept, else of one block
  Tensor score_gradient_;  // score gradients of one block
  Tensor kept_factors_;    // dropout factors of one block
  Tensor dropped_;         // one block's weights after dropout
  Factor input_factor_, gradient_factor_;
  Factor block_factor_;  // weights of one block, then the gradient of its scores
};

/// Rotates queries and keys by angles that grow with the position, so that the product of a query
/// and a key depends on their distance. Of n pairs of a head's elements, pair i at position p is
/// rotated by the angle p / 10000^(i / n).
///
/// Pair i consists of the elements i and i + n. Pairs of neighbours, as in the source, are
/// equivalent up to the order of rows in the query and key weights.
///
/// Shape:  input and output are [sequences · length, 3 · width], with query, key and value side by
///         side. Values are copied unchanged.
/// Before: the width of a head is even.
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
  Tensor opposite_sines_;  // sines of the opposite angles, for the backward pass
  Tensor output_;
  Tensor input_gradient_;
};

}  // namespace kolo::trainer
