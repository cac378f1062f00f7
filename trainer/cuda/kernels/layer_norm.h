#pragma once

#include <algorithm>
#include <cstddef>

#include "comm/base/check.h"
#include "comm/base/dtype.h"
#include "comm/base/native_stream.h"
#include "trainer/cuda/kernels/portable.h"
#include "trainer/tensor.h"

namespace kolo::trainer::cuda {

/// Computes the layer norm of each row, as defined in trainer/kernels/kernels.h, in float32. One or
/// more warps share a row.
///
/// Shape: x and y are [rows, width] of `dtype`; gain and bias are [width]; all are aligned to 16
///        bytes. mean and rstd are [rows].
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

/// Computes the gradients of layer norm: dx = residual + d(norm), where `residual` is the gradient
/// that bypasses the norm. dgain and dbias are overwritten or, with kAdd, added to. Three launches:
/// each lane adds up the parameter gradients of its columns, each block writes one partial sum, and
/// `fold` adds the blocks in order.
///
/// Shape:  dy, x, residual and dx are like x in LayerNormForward; `residual` may be null, and may
///         be `dx`. partials is [plan.blocks, 2, width], aligned to 16 bytes.
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
  Into mode = Into::kOverwrite;
  float* dgain;
  float* dbias;
};

/// Number of columns of a row that a lane keeps in registers: 16 bytes of a 16-bit dtype.
inline constexpr int kLaneColumns = 8;
inline constexpr int kMostNormWarps = 24;  ///< Largest number of warps per block.

/// How rows are distributed over warps and blocks. It depends only on the shape.
struct LayerNormPlan {
  std::size_t warps;     ///< Number of warps that share a row.
  std::size_t rows;      ///< Number of rows that a block processes at a time.
  std::size_t blocks;    ///< Number of blocks of the backward pass.
  std::size_t partials;  ///< Number of floats of all partial sums.
};

/// Plans layer norm for a shape. Errors: UsageError if a row has more columns than the registers of
/// a block hold: 6144.
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
