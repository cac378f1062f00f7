#pragma once

#include <cstddef>

#include "trainer/cuda/compute/dnn.h"
#include "trainer/cuda/compute/dnn_descriptors.h"

namespace kolo::trainer::cuda {

struct ConvolutionShape {
  std::size_t images;
  std::size_t height;
  std::size_t width;
  std::size_t input_channels;  ///< Both a multiple of kChannelMultiple.
  std::size_t output_channels;
  std::size_t kernel;
};

/// cuDNN's matrix units take channels in groups of this size. A layer pads its input channels with
/// zeros to a multiple; output channels must be a multiple, because the next layer reads them.
inline constexpr std::size_t kChannelMultiple = 8;

/// Convolution of NHWC images by cuDNN: stride 1, no padding, accumulated in float32. It takes the
/// fastest algorithm, as cuDNN expects, whose result is the same in every run and whose workspace
/// fits.
///
/// Shape:   x [images, height, width, input_channels], filter [output_channels, kernel, kernel,
///          input_channels], y [images, height - kernel + 1, width - kernel + 1, output_channels],
///          all of `dtype` in device memory, aligned to 16 bytes; results are overwritten.
/// Threads: one. Stream: that of `dnn`, which outlives it.
/// Errors:  KoloError with cuDNN's text, or if cuDNN has no such algorithm.
class Convolution {
 public:
  Convolution(Dnn& dnn, DType dtype, const ConvolutionShape& shape);

  void forward(const void* x, const void* filter, void* y);
  void backward_filter(const void* x, const void* dy, void* dfilter);
  void backward_data(const void* dy, const void* filter, void* dx);

 private:
  Dnn& dnn_;
  TensorDescriptor x_, y_;
  FilterDescriptor filter_;
  ConvolutionDescriptor for_forward_, for_filter_, for_data_;
  cudnnConvolutionFwdAlgo_t forward_;
  cudnnConvolutionBwdFilterAlgo_t backward_filter_;
  cudnnConvolutionBwdDataAlgo_t backward_data_;
};

}  // namespace kolo::trainer::cuda
