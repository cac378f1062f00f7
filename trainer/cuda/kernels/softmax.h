#pragma once

#include <cstddef>
#include <cstdint>

#include "comm/base/dtype.h"
#include "comm/base/native_stream.h"

namespace kolo::trainer::cuda {

/// Replaces row i of each matrix by softmax(scores[i, 0 … i]), with zeros after column i, in place.
/// One warp per row.
///
/// Shape: scores is [matrices, length, length] of `dtype`, aligned to 16 bytes, already scaled.
struct CausalSoftmax {
  DType dtype;
  std::size_t matrices;
  std::size_t length;
  void* scores;
};

void causal_softmax(NativeStream stream, const CausalSoftmax& step);

/// Computes the backward pass of CausalSoftmax in place. `gradient` is first the gradient g of the
/// weights w, then that of the scaled scores: w · (g - sum(g · w)) up to the diagonal, zero after
/// it.
struct CausalSoftmaxBackward {
  DType dtype;
  std::size_t matrices;
  std::size_t length;
  const void* weights;
  void* gradient;
};

void causal_softmax_backward(NativeStream stream, const CausalSoftmaxBackward& step);

/// Values that change from step to step. The device reads them from memory, so that a recorded
/// graph stays valid.
struct BatchHeader {
  float row_weight = 1.0f;    ///< Factor of each row's gradient.
  float loss_scale = 1.0f;    ///< Factor of all gradients.
  std::uint32_t targets = 0;  ///< Number of rows with a target; other rows are padding.
  std::uint32_t padding = 0;
};

/// Sums of loss and score over batches.
struct LossTotals {
  double loss = 0.0;     ///< Sum of losses, in nats.
  double correct = 0.0;  ///< Number of rows whose first largest logit is the target's.
};

/// Computes softmax cross-entropy. The gradient is row_weight · loss_scale · (softmax - onehot),
/// and zero for padding. Loss and number of correct predictions of all rows are added to `totals`,
/// in an order that depends only on the shape. Two launches.
///
/// Shape: logits is float32 [rows, classes]; targets [header.targets]; gradient [rows, classes] of
///        `dtype`, or null if it is not needed; row_results [rows, 2]. All are in device memory.
///        Rows of logits and gradient begin `stride` elements apart.
struct CrossEntropy {
  DType dtype;
  std::size_t rows;
  std::size_t classes;
  std::size_t stride;
  const float* logits;
  const std::int32_t* targets;
  const BatchHeader* header;
  void* gradient;
  float* row_results;
  LossTotals* totals;
};

void cross_entropy(NativeStream stream, const CrossEntropy& step);

}  // namespace kolo::trainer::cuda
