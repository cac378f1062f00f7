#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "trainer/cuda/compute/context.h"
#include "trainer/cuda/layers/attention.h"
#include "trainer/cuda/layers/linear.h"
#include "trainer/cuda/parameters.h"
#include "trainer/layers/attention.h"

namespace kolo::trainer::cuda {

/// Layer norm: scales each row to mean 0 and variance 1, then applies a learnt gain and bias.
///
/// Shape: x, y and gradients are [rows, width] of the context's dtype.
class LayerNorm {
 public:
  LayerNorm(Context& context, DeviceParameters& parameters, const std::string& name,
            std::size_t rows, std::size_t width);

  void forward(const void* x, void* y);

  struct Backward {
    const void* dy;
    const void* x;         ///< Input of the forward pass.
    const void* residual;  ///< Gradient of x along the residual path, which is added; may be null.
    void* dx;              ///< Gradient of x; may be the same memory as `residual`.
  };
  /// Computes the gradients of gain and bias, and reports them ready.
  void backward(const Backward& step);

 private:
  Context& context_;
  DeviceParameters& parameters_;
  DeviceParameter& gain_;
  DeviceParameter& bias_;
  std::size_t rows_;
  std::size_t width_;
  DeviceMemory mean_, rstd_;
};

/// The sum of the rows of a token and of its position, as in trainer/layers/tables.h.
///
/// Shape: tokens is [rows], y and dy [rows, width] of the context's dtype.
class Embedding {
 public:
  struct Options {
    std::size_t sequences;
    std::size_t length;
    std::size_t width;
  };

  Embedding(Context& context, DeviceParameters& parameters, DeviceParameter& token,
            DeviceParameter& position, const Options& options);

  void forward(const std::int32_t* tokens, void* y);

  /// Adds to the gradient of the token table, to which the output layer has written in the same
  /// pass, and reports both tables ready. `order` is that of `order_rows`.
  void backward(const std::int32_t* tokens, const std::int32_t* order, const void* dy);

 private:
  Context& context_;
  DeviceParameters& parameters_;
  DeviceParameter& token_;
  DeviceParameter& position_;
  Options options_;
};

/// Scratch memory that the blocks of a model share.
struct BlockScratch {
  BlockScratch(Context& context, const SelfAttention::Options& options,
               AttentionMode mode = AttentionMode::kAuto);

  AttentionScratch attention;
  DeviceMemory wide;    ///< Gradient in the inner layer, [rows, 4 · width].
  DeviceMemory narrow;  ///< Gradient within a branch, [rows, width].
  DeviceMemory middle;  ///< Gradient between the branches, [rows, width].
};

/// A pre-norm block: h = x + project(attend(norm(x))), y = h + contract(gelu(expand(norm(h)))), as
/// in trainer/layers/transformer_blocks.h. The product before each sum computes the sum, too; in
/// the backward pass, the layer norm does.
///
/// Shape: x, y and gradients are [rows, width] of the context's dtype. `scratch` outlives this.
class TransformerBlock {
 public:
  TransformerBlock(Context& context, DeviceParameters& parameters, BlockScratch& scratch,
                   const std::string& name, const SelfAttention::Options& options);

  /// Returns y, in memory of the block. `x` must not change until `backward` returns.
  const void* forward(const void* x);

  /// `gradient` is first the gradient of y, then the gradient of x.
  void backward(void* gradient);

 private:
  TransformerBlock(Context& context, DeviceParameters& parameters, BlockScratch& scratch,
                   const std::string& name, const SelfAttention::Options& options, std::size_t rows,
                   std::size_t width);

  BlockScratch& scratch_;
  LayerNorm attention_norm_;
  Linear query_key_value_;
  Attention attention_;
  Linear project_;
  LayerNorm inner_norm_;
  Linear expand_;
  Linear contract_;

  const void* x_ = nullptr;
  DeviceMemory attention_input_;  // norm(x)
  DeviceMemory attended_;
  DeviceMemory middle_;       // h
  DeviceMemory inner_input_;  // norm(h)
  DeviceMemory expanded_;     // input of GELU, [rows, 4 · width]
  DeviceMemory inner_;        // output of GELU
  DeviceMemory output_;
};

}  // namespace kolo::trainer::cuda
