#pragma once

#include <cstddef>

#include "trainer/cuda/compute/context.h"
#include "trainer/cuda/kernels/heads.h"
#include "trainer/layers/attention/self_attention.h"

namespace kolo::trainer::cuda {

/// Scratch memory that the attention layers of a model share.
struct AttentionScratch {
  AttentionScratch(Context& context, const SelfAttention::Options& options);

  DeviceMemory heads;            ///< [sequences · heads, length, head_width]
  DeviceMemory split_gradients;  ///< [3, sequences · heads, length, head_width]
  DeviceMemory score_gradients;  ///< [sequences · heads, length, length]
};

/// Scaled dot-product attention of each position over itself and earlier ones, as
/// trainer/layers/self_attention.h: each product is one batch over all heads.
///
/// Shape: as there; all of the context's dtype. `scratch` and `context` outlive it.
class Attention {
 public:
  Attention(Context& context, AttentionScratch& scratch, const SelfAttention::Options& options);

  /// Computes `y` [rows, width] from `packed` [rows, 3 · width], which is not needed afterwards.
  void forward(const void* packed, void* y);
  void backward(const void* dy, void* packed_gradient);

 private:
  // One batch over all heads, of [rows, depth] by [depth, columns].
  const Blas::Plan* plan(std::size_t rows, std::size_t columns, std::size_t depth, Layout a,
                         Layout b);
  void multiply(const Blas::Plan* plan, const void* a, const void* b, void* d, float alpha = 1.0f);
  // Query, key or value inside memory that holds all three.
  std::byte* part(const DeviceMemory& memory, std::size_t index) const;

  Context& context_;
  AttentionScratch& scratch_;
  HeadShape packed_;
  HeadShape single_;
  std::size_t matrices_;
  float factor_;              // 1 / sqrt(head_width)
  DeviceMemory split_;        // [3, sequences · heads, length, head_width]
  DeviceMemory weights_;      // [sequences · heads, length, length]
  const Blas::Plan* scores_;  // also the gradient of the weights
  const Blas::Plan* mix_;     // weights by values, and score gradients by keys
  const Blas::Plan* unmix_;   // the same with the left side transposed
};

}  // namespace kolo::trainer::cuda
