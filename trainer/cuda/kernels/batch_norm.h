#pragma once

#include <cstddef>

#include "comm/base/dtype.h"
#include "comm/base/native_stream.h"
#include "trainer/cuda/kernels/column_sums.h"
#include "trainer/cuda/kernels/portable.h"
#include "trainer/cuda/kernels/softmax.h"
#include "trainer/tensor.h"

namespace kolo::trainer::cuda {

/// Batch norm as in trainer/layers/normalization.h, without sums over ranks. In training, it
/// updates the running statistics; otherwise it normalizes with them.
///
/// Rows of samples without a target are padding and do not count. The device reads their number
/// from `header`, so that a recorded graph serves every batch. Sums are float32 in an order that
/// depends only on the shape; the first row is subtracted first, and the sums of slices of rows are
/// added in float64. Three launches in training, otherwise two.
///
/// Shape:  x and y are [rows, channels] of `dtype`, aligned to 16 bytes. The other arrays are
///         float32: gain, bias, mean, rstd and the running statistics [channels]; factors [3,
///         channels] and partials [partial_count()], scratch memory.
/// Source: Ioffe and Szegedy, "Batch Normalization", ICML 2015.
struct BatchNormForward {
  DType dtype;
  std::size_t rows;             ///< Of x, padding included.
  std::size_t rows_per_sample;  ///< Number of pixels of an image.
  std::size_t channels;
  const float* gain;
  const float* bias;
  float* running_mean;
  float* running_variance;
  float* mean;  ///< Statistics of the pass.
  float* rstd;
  float* factors;
  float* partials = nullptr;
  const BatchHeader* header = nullptr;
  bool is_training = true;
  const void* x = nullptr;
  void* y;

  /// Rows that count. Call on the device.
  KOLO_HOST_DEVICE std::size_t counted_rows() const {
    const std::size_t counted = header->targets * rows_per_sample;
    return counted < rows ? counted : rows;
  }
  std::size_t parts() const { return column_sum_parts(rows); }
  std::size_t partial_count() const { return parts() * 2 * channels; }
};

void batch_norm(NativeStream stream, const BatchNormForward& step);

/// Computes the gradients of batch norm in training: dx, which is zero for padding, and dgain and
/// dbias, which are overwritten or, with kAdd, added to. Three launches.
///
/// Shape: dy and dx are like x.
struct BatchNormBackward {
  BatchNormForward of;  ///< The last forward pass; its scratch memory is used again.
  const void* dy;
  void* dx;
  Into mode = Into::kOverwrite;
  float* dgain;
  float* dbias;
};

void batch_norm_backward(NativeStream stream, const BatchNormBackward& step);

}  // namespace kolo::trainer::cuda
