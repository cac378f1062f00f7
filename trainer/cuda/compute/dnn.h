#pragma once

#include <cudnn.h>

#include <cstddef>
#include <string_view>

#include "comm/base/dtype.h"
#include "comm/base/log.h"
#include "comm/base/unique_handle.h"
#include "comm/device/device.h"

namespace kolo::trainer::cuda {

/// Throws KoloError with cuDNN's text unless the call succeeded.
void check_dnn(cudnnStatus_t status, std::string_view call);

/// A handle of cuDNN, which `kDestroy` closes.
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

/// cuDNN on one stream, with a workspace that its operations share. Opened at the first use, so
/// that models without images do not load it.
///
/// Threads: one. `device` and `stream` outlive it.
class Dnn {
 public:
  Dnn(kolo::Device& device, Stream& stream) : device_(device), stream_(stream) {}

  /// Errors: KoloError with cuDNN's text.
  cudnnHandle_t handle();

  /// At plan time: gives the workspace at least `bytes`.
  void reserve(std::size_t bytes);
  void* workspace() const { return workspace_.data(); }
  std::size_t workspace_bytes() const { return workspace_.bytes(); }

 private:
  kolo::Device& device_;
  Stream& stream_;
  DeviceMemory workspace_;
  DnnHandle handle_;
};

struct ConvolutionShape {
  std::size_t images;
  std::size_t height;
  std::size_t width;
  std::size_t input_channels;  ///< A multiple of kChannelMultiple, as is output_channels.
  std::size_t output_channels;
  std::size_t kernel;
};

/// cuDNN's matrix units take channels in groups of this size. A layer pads its input channels with
/// zeros to a multiple; output channels must be a multiple, because the next layer reads them.
inline constexpr std::size_t kChannelMultiple = 8;

/// Convolution of NHWC images by cuDNN: stride 1, no padding, accumulated in float32. Uses the
/// algorithm that cuDNN expects to be fastest among those that are deterministic and whose
/// workspace fits.
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
