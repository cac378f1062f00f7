#pragma once

#include <cstddef>

#include "trainer/cuda/compute/dnn.h"
#include "trainer/cuda/compute/dnn_descriptors.h"

namespace kolo::trainer::cuda {

/// Normalises each channel of NHWC images over images and places, then applies gain and bias; by
/// cuDNN, in training mode.
///
/// Shape:   x, y, dy and dx [images, height, width, channels] of `dtype`; all others [channels],
///          float32. Running mean and variance move by `momentum` towards those of the batch.
/// Threads: one. Stream: that of `dnn`, which outlives it. Errors: KoloError with cuDNN's text.
/// Source:  Ioffe and Szegedy, "Batch Normalization", ICML 2015.
class BatchNorm {
 public:
  struct Shape {
    std::size_t images;
    std::size_t height;
    std::size_t width;
    std::size_t channels;
  };
  struct Forward {
    const void* x;
    const float* gain;
    const float* bias;
    double momentum;
    void* y;
    float* running_mean;
    float* running_variance;
    float* mean;  ///< Mean of the batch, for the backward pass; likewise rstd.
    float* rstd;
  };
  struct Backward {
    const void* x;
    const void* dy;
    const float* gain;
    const float* mean;
    const float* rstd;
    void* dx;
    float* dgain;
    float* dbias;
  };

  BatchNorm(Dnn& dnn, DType dtype, const Shape& shape);

  void forward(const Forward& step);
  void backward(const Backward& step);

 private:
  Dnn& dnn_;
  TensorDescriptor x_;
  TensorDescriptor parameters_;  // [1, 1, 1, channels], float32
};

}  // namespace kolo::trainer::cuda
