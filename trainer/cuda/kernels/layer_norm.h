#pragma once

#include <algorithm>
#include <cstddef>

#include "comm/base/check.h"
#include "comm/base/dtype.h"
#include "comm/base/native_stream.h"
#include "trainer/cuda/kernels/portable.h"

namespace kolo::trainer::cuda {

/// Layer norm of each row as trainer/kernels/kernels.h defines it, in float32; a few warps share a
/// row.
///
/// Shape: x and y are [rows, width] of `dtype`, aligned to 16 bytes; gain and bias are [width],
///        aligned to 16 bytes, mean and rstd [rows].
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

/// Gradients of layer norm: dx = residual + d(norm), where residual is the gradient that bypasses
/// the norm; dgain and dbias are overwritten. Three launches: lanes keep the parameter gradients of
/// their columns, a block writes one partial sum, and `fold` adds the blocks in order.
///
/// Shape:  dy, x, residual and dx as x above; `residual` may be null, and may be `dx`; partials
///         [plan.blocks, 2, width], aligned to 16 bytes.
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

/// Columns of a row that a lane keeps in registers: a pack of the 16-bit dtypes.
inline constexpr int kLaneColumns = 8;
inline constexpr int kMostNormWarps = 24;  ///< Per block.

/// Distribution of rows over warps and blocks. Depends only on the shape.
struct LayerNormPlan {
  std::size_t warps;  ///< Warps that share a row.
  std::size_t rows;   ///< Rows that a block processes at a time.
  std::size_t
      blocks;  ///< Backward, where block b begins with rows b · rows, (b + blocks) · rows, ...
  std::size_t partials;  ///< Float count of the partial sums.
};

/// Errors: UsageError when a row is wider than the registers of a block: 6144 columns.
inline LayerNormPlan plan_layer_norm(std::size_t rows, std::size_t width) {
  constexpr std::size_t kWarpsOfNarrowRows = 12;  // per block: 4 rows of 768 columns
  constexpr std::size_t kMostRows = 8;
  constexpr std::size_t kMostBlocks = 512;
  const std::size_t warps =
      std::max<std::size_t>(ceil_div<std::size_t>(width, 32 * kLaneColumns), 1);
  check(warps <= kMostNormWarps, "layer norm takes rows of at most 6144 columns");
  const std::size_t at_once = std::clamp<std::size_t>(kWarpsOfNarrowRows / warps, 1, kMostRows);
  const std::size_t blocks = std::clamp<std::size_t>(ceil_div(rows, at_once), 1, kMostBlocks);
  return {.warps = warps, .rows = at_once, .blocks = blocks, .partials = blocks * 2 * width};
}

void layer_norm_backward(NativeStream stream, const LayerNormBackward& step);

}  // namespace kolo::trainer::cuda
