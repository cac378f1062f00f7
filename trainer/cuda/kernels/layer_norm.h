#pragma once

#include <cstddef>

#include "comm/base/dtype.h"
#include "comm/base/native_stream.h"
#include "trainer/cuda/kernels/portable.h"

namespace kolo::trainer::cuda {

/// Layer norm of each row as trainer/kernels/normalize.h defines it, in float32; a warp per row.
///
/// Shape: x and y are [rows, width] of `dtype`, aligned to 16 bytes; gain and bias are [width],
///        mean and rstd [rows].
/// Source: Ba, Kiros and Hinton, "Layer Normalization", 2016.
struct LayerNormForward {
  DType dtype;
  std::size_t rows;
  std::size_t width;
  const void* x;
  const float* gain;
  const float* bias;
  void* y;
  float* mean;
  float* rstd;
};

void layer_norm(NativeStream stream, const LayerNormForward& step);

/// Its gradients: dx = residual + d(norm), where residual is the gradient that bypasses the norm;
/// dgain and dbias are overwritten. Three launches: a warp keeps the parameter gradients of its
/// rows in shared memory, a block writes one partial sum, and `fold` adds the blocks in order.
///
/// Shape:  dy, x, residual and dx as x above; `residual` may be null, and may be `dx`; partials
///         [plan.blocks, 2, width].
struct LayerNormBackward {
  DType dtype;
  std::size_t rows;
  std::size_t width;
  const void* dy;
  const void* x;
  const float* gain;
  const float* mean;
  const float* rstd;
  const void* residual;
  void* dx;
  float* partials;
  float* dgain;
  float* dbias;
};

/// Distribution of rows over warps: row r belongs to warp r % (blocks · warps). Depends only on the
/// shape.
struct LayerNormPlan {
  std::size_t warps;  ///< Per block.
  std::size_t blocks;
  std::size_t partials;      ///< Floats.
  std::size_t shared_bytes;  ///< Per block.
};

/// Errors: UsageError when a row is wider than a warp's share of shared memory: 6144 columns.
LayerNormPlan plan_layer_norm_backward(std::size_t rows, std::size_t width, DType dtype);

/// Place of a lane's sum of `column`: packs of N neighbouring columns belong to one lane, whose
/// sums lie 32 apart, so no two lanes use the same bank.
template <int N>
KOLO_HOST_DEVICE constexpr std::size_t lane_slot(std::size_t column) {
  const std::size_t group = column / (32 * N);
  const std::size_t lane = column / N % 32;
  return (group * N + column % N) * 32 + lane;
}

void layer_norm_backward(NativeStream stream, const LayerNormBackward& step);

namespace reference {
/// In float64 between the roundings of inputs and outputs.
void layer_norm(const LayerNormForward& step);
void layer_norm_backward(const LayerNormBackward& step);
}  // namespace reference

}  // namespace kolo::trainer::cuda
