#pragma once

#include <cstddef>

#include "trainer/cuda/layers/attention.h"
#include "trainer/cuda/layers/layer_norm.h"
#include "trainer/cuda/layers/linear.h"
#include "trainer/cuda/parameters/registration.h"

namespace kolo::trainer::cuda {

/// Scratch memory that the blocks of a model share.
struct BlockScratch {
  BlockScratch(Context& context, const SelfAttention::Options& options);

  AttentionScratch attention;
  DeviceMemory packed;  ///< [rows, 3 · width]: query, key and value, or their gradients.
  DeviceMemory wide;    ///< [rows, 4 · width]: gradient in the inner layer.
  DeviceMemory narrow;  ///< [rows, width]: gradient within a branch.
  DeviceMemory middle;  ///< [rows, width]: gradient between the branches.
};

/// h = x + project(attend(norm(x))), y = h + contract(gelu(expand(norm(h)))), as
/// trainer/layers/transformer_block.h. Both sums are part of the products before them; in the
/// backward pass they are part of the layer norm.
///
/// Shape: x, y and gradients are [rows, width] of the context's dtype. `scratch` outlives it.
class TransformerBlock {
 public:
  TransformerBlock(Context& context, DeviceParameters& parameters, BlockScratch& scratch,
                   const BlockParameters& names, const SelfAttention::Options& options);

  /// `x` must not change until `backward`. The result belongs to the block.
  const void* forward(const void* x);

  /// `gradient` is that of y on entry and that of x on return.
  void backward(void* gradient);

 private:
  TransformerBlock(Context& context, DeviceParameters& parameters, BlockScratch& scratch,
                   const BlockParameters& names, const SelfAttention::Options& options,
                   std::size_t rows, std::size_t width);

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
