#pragma once

#include <cudnn.h>

#include <cstddef>
#include <string_view>

#include "comm/base/dtype.h"
#include "comm/base/log.h"
#include "comm/base/unique_handle.h"
#include "comm/device/device.h"
#include "trainer/layers/images.h"

namespace kolo::trainer::cuda {

/// Throws KoloError with cuDNN's text if `status` is an error.
void check_dnn(cudnnStatus_t status, std::string_view call);

/// Returns cuDNN's name of a dtype of activations.
cudnnDataType_t dnn_type(DType dtype);

/// How UniqueHandle closes a cuDNN handle: with `kDestroy`.
template <typename Handle, auto kDestroy>
struct DnnTraits {
  using Value = Handle;
  static Value invalid() noexcept { return nullptr; }
  static void close(Value handle) noexcept {
    if (kDestroy(handle) != CUDNN_STATUS_SUCCESS) log::error("closing a handle of cuDNN failed");
  }
};
using DnnHandle = UniqueHandle<DnnTraits<cudnnHandle_t, cudnnDestroy>>;
using TensorDescriptor =
    UniqueHandle<DnnTraits<cudnnTensorDescriptor_t, cudnnDestroyTensorDescriptor>>;
using FilterDescriptor =
    UniqueHandle<DnnTraits<cudnnFilterDescriptor_t, cudnnDestroyFilterDescriptor>>;
using ConvolutionDescriptor =
    UniqueHandle<DnnTraits<cudnnConvolutionDescriptor_t, cudnnDestroyConvolutionDescriptor>>;
using PoolingDescriptor =
    UniqueHandle<DnnTraits<cudnnPoolingDescriptor_t, cudnnDestroyPoolingDescriptor>>;

/// cuDNN on one stream, with a workspace that its operations share. It is opened at its first use,
/// so models without images do not load the library.
///
/// Threads: one. `device` and `stream` outlive this object.
class Dnn {
 public:
  Dnn(kolo::Device& device, Stream& stream) : device_(device), stream_(stream) {}

  /// The handle of the library, opened at the first call. Errors: KoloError with cuDNN's text.
  cudnnHandle_t handle();

  /// Makes the workspace at least `bytes` bytes large. Call during setup, not in a step.
  void reserve(std::size_t bytes);
  void* workspace() const { return workspace_.data(); }
  std::size_t workspace_bytes() const { return workspace_.bytes(); }

 private:
  kolo::Device& device_;
  Stream& stream_;
  DeviceMemory workspace_;
  DnnHandle handle_;
};

/// cuDNN's matrix units process channels in groups of this size. A layer pads its input channels
/// with zeros to a multiple. Output channels must be a multiple, because the next layer reads them.
inline constexpr std::size_t kChannelMultiple = 8;

/// Convolution of NHWC images by cuDNN, accumulated in float32. It uses the algorithm that cuDNN
/// expects to be fastest, among those that are deterministic and whose workspace fits.
///
/// Shape:   x is [images, height, width, input_channels], filter [output_channels, kernel, kernel,
///          input_channels], y [images, output_height, output_width, output_channels]; all are of
///          `dtype` in device memory, aligned to 16 bytes. Channels are multiples of
///          kChannelMultiple. Results are overwritten.
/// Threads: one. Stream: that of `dnn`, which outlives it.
/// Errors:  KoloError with cuDNN's text, or if cuDNN has no suitable algorithm.
class Convolution {
 public:
  Convolution(Dnn& dnn, DType dtype, const Conv2d::Options& shape);

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

/// Pooling of NHWC images by cuDNN, as in trainer/layers/images.h.
///
/// Shape:   x is [images, height, width, channels], y [images, output_height, output_width,
///          channels], both of `dtype` in device memory. `backward` reads x and y of the forward
///          pass.
/// Threads: one. Stream: that of `dnn`, which outlives it. Errors: KoloError with cuDNN's text.
class Pooling {
 public:
  Pooling(Dnn& dnn, DType dtype, const MaxPool::Options& options);
  Pooling(Dnn& dnn, DType dtype, const AveragePool::Options& options);

  void forward(const void* x, void* y);
  void backward(const void* x, const void* y, const void* dy, void* dx);

 private:
  Dnn& dnn_;
  TensorDescriptor x_, y_;
  PoolingDescriptor pooling_;
};

}  // namespace kolo::trainer::cuda
