#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "trainer/cuda/compute/context.h"
#include "trainer/cuda/compute/dnn_graph.h"
#include "trainer/cuda/kernels/layouts.h"
#include "trainer/layers/attention.h"

namespace kolo::trainer::cuda {

/// How attention is computed on a device.
enum class AttentionMode : std::uint8_t {
  kAuto,      ///< kFused for 16-bit activations if cuDNN can, else kProducts, with a warning.
  kFused,     ///< By cuDNN in a kernel per pass. Scores do not go through memory.
  kProducts,  ///< By matrix products of all heads as one batch, with the scores in memory.
};

/// cuDNN's graphs of the two passes of attention over all heads.
///
/// Shape:   `packed` and its gradient are [rows, 3 · width], y and dy [rows, width]; `statistics`
/// is
///          float32 [sequences · heads, length], the logarithm of each row's sum of exponentials.
/// Bits:    equal in every run.
/// Threads: one. Errors: KoloError with cuDNN's text.
/// Source:  Dao et al., FlashAttention, NeurIPS 2022; cuDNN recognises the operations of its own
///          frontend's `sdpa` and `sdpa_backward`, whose order these graphs keep.
class FusedAttention {
 public:
  FusedAttention(DType dtype, const HeadShape& packed);

  /// Returns false if cuDNN cannot run the graphs.
  bool compile(Dnn& dnn) { return forward_.compile(dnn) && backward_.compile(dnn); }

  void forward(const void* packed, void* y, void* statistics);

  struct Backward {
    const void* packed;
    const void* y;
    const void* dy;
    const void* statistics;
    void* packed_gradient;
    void* row_sums;  ///< Scratch memory like `statistics`.
  };
  void backward(const Backward& pass);

  const DnnGraph& forward_graph() const { return forward_; }
  const DnnGraph& backward_graph() const { return backward_; }

 private:
  std::size_t part_bytes_;  // from query to key, and from key to value
  float factor_;            // 1 / sqrt(head_width)
  DnnGraph forward_, backward_;
};

/// Memory and compiled graphs that the attention layers of a model share.
struct AttentionScratch {
  /// Errors: KoloError(kConfig) if `mode` is kFused and cuDNN cannot.
  AttentionScratch(Context& context, const SelfAttention::Options& options, AttentionMode mode);

  std::optional<FusedAttention> fused;  ///< Empty with kProducts.
  DeviceMemory packed;                  ///< Query, key and value, or gradients, [rows, 3 · width].
  DeviceMemory row_sums;                ///< For kFused: see FusedAttention.
  // For kProducts:
  DeviceMemory heads;            ///< Output or its gradient by head, [sequences · heads, length,
                                 ///< head_width].
  DeviceMemory split_gradients;  ///< [3, sequences · heads, length, head_width]
  DeviceMemory score_gradients;  ///< [sequences · heads, length, length]
};

/// Causal scaled dot-product attention, as in trainer/layers/attention.h.
///
/// Shape: as in that file, of the context's dtype. `scratch` and `context` outlive this layer.
class Attention {
 public:
  Attention(Context& context, AttentionScratch& scratch, const SelfAttention::Options& options);

  /// Memory for query, key and value, [rows, 3 · width], until the next call of `forward`.
  void* inputs() const;
  /// Computes `y`, [rows, width], from the inputs.
  void forward(void* y);
  /// Returns the gradient of the inputs, in scratch memory. `y` is the result of `forward`.
  const void* backward(const void* y, const void* dy);

 private:
  // The plan of products of [rows, depth] and [depth, columns] matrices, batched over all heads.
  const Blas::Plan* plan(std::size_t rows, std::size_t columns, std::size_t depth, Layout a,
                         Layout b);
  void multiply(const Blas::Plan* plan, const void* a, const void* b, void* d, float alpha = 1.0f);
  // Query, key or value in memory that holds all three.
  std::byte* part(const DeviceMemory& memory, std::size_t index) const;
  void forward_by_products(void* y);
  void backward_by_products(const void* dy);

  Context& context_;
  AttentionScratch& scratch_;
  HeadShape packed_;
  HeadShape single_;
  std::size_t matrices_;
  float factor_;             // 1 / sqrt(head_width)
  DeviceMemory inputs_;      // kFused: [rows, 3 · width]; kProducts: by part and head
  DeviceMemory statistics_;  // kFused: see FusedAttention
  DeviceMemory weights_;     // kProducts: [sequences · heads, length, length]
  // For kProducts:
  const Blas::Plan* scores_ = nullptr;  // scores, and the gradient of the weights
  const Blas::Plan* mix_ = nullptr;     // weights times values, and score gradients times keys
  const Blas::Plan* unmix_ = nullptr;   // like mix_, with the left operand transposed
};

}  // namespace kolo::trainer::cuda
