#pragma once

#include <cstddef>
#include <cstdint>

#include "comm/base/dtype.h"
#include "comm/base/native_stream.h"

namespace kolo::trainer::cuda {

/// Replaces row i of each matrix by softmax(scores[i, 0 … i]), with zeros beyond i. In place; one
/// warp per row.
///
/// Shape: scores [matrices, length, length] of `dtype`, aligned to 16 bytes, already scaled.
struct CausalSoftmax {
  DType dtype;
  std::size_t matrices;
  std::size_t length;
  void* scores;
};

void causal_softmax(NativeStream stream, const CausalSoftmax& step);

/// Turns the gradient of the weights into the gradient of the scaled scores, in place in
/// `gradient`: w (g - sum(g w)) up to the diagonal, zero beyond it.
struct CausalSoftmaxBackward {
  DType dtype;
  std::size_t matrices;
  std::size_t length;
  const void* weights;
  void* gradient;
};

void causal_softmax_backward(NativeStream stream, const CausalSoftmaxBackward& step);

/// Values that change from step to step, read by the device so that a recorded graph stays valid.
struct BatchHeader {
  float row_weight = 1.0f;    ///< Factor of each row's gradient.
  float loss_scale = 1.0f;    ///< Factor of all gradients.
  std::uint32_t targets = 0;  ///< Rows beyond these are padding.
  std::uint32_t padding = 0;
};

/// Sums over batches.
struct LossTotals {
  double loss = 0.0;     ///< Nats.
  double correct = 0.0;  ///< Rows whose largest logit, the first of equals, is the target's.
};

/// Softmax cross-entropy of logits: writes the gradient,
/// row_weight · loss_scale · (softmax - onehot), zero for padding, and adds loss and correct
/// predictions of all rows to `totals` in row order. Two launches.
///
/// Shape: logits [rows, classes] float32; targets [header.targets]; gradient [rows, classes] of
///        `dtype`, or null for none; row_results [rows, 2]; header and totals in device memory.
struct CrossEntropy {
  DType dtype;
  std::size_t rows;
  std::size_t classes;
  const float* logits;
  const std::uint8_t* targets;
  const BatchHeader* header;
  void* gradient;
  float* row_results;
  LossTotals* totals;
};

void cross_entropy(NativeStream stream, const CrossEntropy& step);

}  // namespace kolo::trainer::cuda
