#pragma once

#include <cstddef>

#include "comm/base/dtype.h"
#include "comm/base/native_stream.h"

namespace kolo::trainer::cuda {

/// Row i of each matrix becomes softmax(scores[i, 0 … i]), zero beyond i. In place; a warp per row.
///
/// Shape: scores [matrices, length, length] of `dtype`, aligned to 16 bytes, already scaled.
struct CausalSoftmax {
  DType dtype;
  std::size_t matrices;
  std::size_t length;
  void* scores;
};

void causal_softmax(NativeStream stream, const CausalSoftmax& step);

/// From weights and the gradient of the weights to the gradient of the scaled scores, in place in
/// `gradient`: w (g - sum(g w)) up to the diagonal, zero beyond it.
struct CausalSoftmaxBackward {
  DType dtype;
  std::size_t matrices;
  std::size_t length;
  const void* weights;
  void* gradient;
};

void causal_softmax_backward(NativeStream stream, const CausalSoftmaxBackward& step);

namespace reference {
void causal_softmax(const CausalSoftmax& step);
void causal_softmax_backward(const CausalSoftmaxBackward& step);
}  // namespace reference

}  // namespace kolo::trainer::cuda
