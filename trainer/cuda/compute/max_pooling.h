#pragma once

#include <cstddef>

#include "trainer/cuda/compute/dnn.h"
#include "trainer/cuda/compute/dnn_descriptors.h"

namespace kolo::trainer::cuda {

struct PoolingShape {
  std::size_t images;
  std::size_t height;
  std::size_t width;
  std::size_t channels;
};

/// The largest value of each 2 x 2 window of NHWC images by cuDNN; a last odd row or column is
/// dropped.
///
/// Shape:   x [images, height, width, channels], y [images, height / 2, width / 2, channels], both
///          of `dtype` in device memory; backward reads both from the forward pass.
/// Threads: one. Stream: that of `dnn`, which outlives it. Errors: KoloError with cuDNN's text.
class MaxPooling {
 public:
  MaxPooling(Dnn& dnn, DType dtype, const PoolingShape& shape);

  void forward(const void* x, void* y);
  void backward(const void* x, const void* y, const void* dy, void* dx);

 private:
  Dnn& dnn_;
  TensorDescriptor x_, y_;
  PoolingDescriptor pooling_;
};

}  // namespace kolo::trainer::cuda
