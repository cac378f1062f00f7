#include "trainer/cuda/compute/dnn.h"

#include <algorithm>
#include <array>
#include <string>

#include <fmt/format.h>

#include "comm/base/check.h"
#include "comm/base/error.h"

namespace kolo::trainer::cuda {
namespace {

// Makes the descriptor of a contiguous tensor [images, height, width, channels].
TensorDescriptor make_images(DType dtype, std::size_t images, std::size_t height, std::size_t width,
                             std::size_t channels) {
  cudnnTensorDescriptor_t descriptor = nullptr;
  check_dnn(cudnnCreateTensorDescriptor(&descriptor), "cudnnCreateTensorDescriptor");
  TensorDescriptor handle(descriptor);
  check_dnn(cudnnSetTensor4dDescriptor(descriptor, CUDNN_TENSOR_NHWC, dnn_type(dtype),
                                       narrow<int>(images), narrow<int>(channels),
                                       narrow<int>(height), narrow<int>(width)),
            "cudnnSetTensor4dDescriptor");
  return handle;
}

// Makes the descriptor of a contiguous filter [outputs, kernel, kernel, inputs].
FilterDescriptor make_filter(DType dtype, std::size_t outputs, std::size_t kernel,
                             std::size_t inputs) {
  cudnnFilterDescriptor_t descriptor = nullptr;
  check_dnn(cudnnCreateFilterDescriptor(&descriptor), "cudnnCreateFilterDescriptor");
  FilterDescriptor handle(descriptor);
  check_dnn(cudnnSetFilter4dDescriptor(descriptor, dnn_type(dtype), CUDNN_TENSOR_NHWC,
                                       narrow<int>(outputs), narrow<int>(inputs),
                                       narrow<int>(kernel), narrow<int>(kernel)),
            "cudnnSetFilter4dDescriptor");
  return handle;
}

// Makes the descriptor of a convolution with float32 accumulation.
ConvolutionDescriptor make_convolution(DType dtype, const Conv2d::Options& o) {
  const int padding = narrow<int>(o.padding), stride = narrow<int>(o.stride);
  const cudnnMathType_t math = is_16bit_float(dtype) ? CUDNN_TENSOR_OP_MATH : CUDNN_FMA_MATH;
  cudnnConvolutionDescriptor_t descriptor = nullptr;
  check_dnn(cudnnCreateConvolutionDescriptor(&descriptor), "cudnnCreateConvolutionDescriptor");
  ConvolutionDescriptor handle(descriptor);
  check_dnn(cudnnSetConvolution2dDescriptor(descriptor, padding, padding, stride, stride, 1, 1,
                                            CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT),
            "cudnnSetConvolution2dDescriptor");
  check_dnn(cudnnSetConvolutionMathType(descriptor, math), "cudnnSetConvolutionMathType");
  return handle;
}

// Makes the descriptor of pooling. It is deterministic: among equal values, the same one gets the
// gradient in every run.
PoolingDescriptor make_pooling(cudnnPoolingMode_t mode, std::size_t height, std::size_t width,
                               std::size_t stride, std::size_t padding) {
  cudnnPoolingDescriptor_t descriptor = nullptr;
  check_dnn(cudnnCreatePoolingDescriptor(&descriptor), "cudnnCreatePoolingDescriptor");
  PoolingDescriptor handle(descriptor);
  check_dnn(
      cudnnSetPooling2dDescriptor(descriptor, mode, CUDNN_PROPAGATE_NAN, narrow<int>(height),
                                  narrow<int>(width), narrow<int>(padding), narrow<int>(padding),
                                  narrow<int>(stride), narrow<int>(stride)),
      "cudnnSetPooling2dDescriptor");
  return handle;
}

// Factors of results and of existing values; cuDNN takes them by address.
constexpr float kOne = 1.0f;
constexpr float kZero = 0.0f;

constexpr std::size_t kWorkspaceLimit = std::size_t{512} << 20;

// Returns the first suitable algorithm of `offers`, which are sorted by speed. Reserves its
// workspace and, for 16-bit dtypes, sets its arithmetic in `convolution`.
template <typename Offers>
auto choose(Dnn& dnn, DType dtype, const Offers& offers, int count,
            const ConvolutionDescriptor& convolution, const char* what) {
  const auto end = offers.begin() + count;
  const auto suits = [](const auto& offer) {
    return offer.status == CUDNN_STATUS_SUCCESS && offer.determinism == CUDNN_DETERMINISTIC &&
           offer.memory <= kWorkspaceLimit;
  };
  const auto best = std::find_if(offers.begin(), end, suits);
  if (best == end) {
    throw KoloError({.code = ErrorCode::kInternal,
                     .what = std::string("cuDNN has no deterministic algorithm for the ") + what +
                             " of a convolution of this shape"});
  }
  dnn.reserve(best->memory);
  if (is_16bit_float(dtype)) {
    check_dnn(cudnnSetConvolutionMathType(convolution.get(), best->mathType),
              "cudnnSetConvolutionMathType");
  }
  return best->algo;
}

}  // namespace

void check_dnn(cudnnStatus_t status, std::string_view call) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  throw KoloError({.code = ErrorCode::kInternal,
                   .what = fmt::format("{}: {}", call, cudnnGetErrorString(status))});
}

cudnnDataType_t dnn_type(DType dtype) {
  if (dtype == DType::kBFloat16) return CUDNN_DATA_BFLOAT16;
  if (dtype == DType::kFloat16) return CUDNN_DATA_HALF;
  return CUDNN_DATA_FLOAT;
}

cudnnHandle_t Dnn::handle() {
  if (!handle_) {
    cudnnHandle_t handle = nullptr;
    check_dnn(cudnnCreate(&handle), "cudnnCreate");
    handle_ = DnnHandle(handle);
    check_dnn(cudnnSetStream(handle, static_cast<cudaStream_t>(stream_.native())),
              "cudnnSetStream");
  }
  return handle_.get();
}

void Dnn::reserve(std::size_t bytes) {
  if (bytes > workspace_.bytes()) workspace_ = device_.allocate(bytes, MemoryKind::kDevice);
}

Convolution::Convolution(Dnn& dnn, DType dtype, const Conv2d::Options& s)
    : dnn_(dnn),
      x_(make_images(dtype, s.images, s.height, s.width, s.input_channels)),
      y_(make_images(dtype, s.images, s.output_height(), s.output_width(), s.output_channels)),
      filter_(make_filter(dtype, s.output_channels, s.kernel, s.input_channels)),
      for_forward_(make_convolution(dtype, s)),
      for_filter_(make_convolution(dtype, s)),
      for_data_(make_convolution(dtype, s)) {
  int count = 0;
  std::array<cudnnConvolutionFwdAlgoPerf_t, CUDNN_CONVOLUTION_FWD_ALGO_COUNT> forward{};
  check_dnn(cudnnGetConvolutionForwardAlgorithm_v7(
                dnn.handle(), x_.get(), filter_.get(), for_forward_.get(), y_.get(),
                static_cast<int>(forward.size()), &count, forward.data()),
            "cudnnGetConvolutionForwardAlgorithm_v7");
  forward_ = choose(dnn, dtype, forward, count, for_forward_, "forward pass");

  std::array<cudnnConvolutionBwdFilterAlgoPerf_t, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT>
      backward_filter{};
  check_dnn(cudnnGetConvolutionBackwardFilterAlgorithm_v7(
                dnn.handle(), x_.get(), y_.get(), for_filter_.get(), filter_.get(),
                static_cast<int>(backward_filter.size()), &count, backward_filter.data()),
            "cudnnGetConvolutionBackwardFilterAlgorithm_v7");
  backward_filter_ = choose(dnn, dtype, backward_filter, count, for_filter_, "filter gradient");

  std::array<cudnnConvolutionBwdDataAlgoPerf_t, CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT>
      backward_data{};
  check_dnn(cudnnGetConvolutionBackwardDataAlgorithm_v7(
                dnn.handle(), filter_.get(), y_.get(), for_data_.get(), x_.get(),
                static_cast<int>(backward_data.size()), &count, backward_data.data()),
            "cudnnGetConvolutionBackwardDataAlgorithm_v7");
  backward_data_ = choose(dnn, dtype, backward_data, count, for_data_, "data gradient");
}

void Convolution::forward(const void* x, const void* filter, void* y) {
  check_dnn(cudnnConvolutionForward(dnn_.handle(), &kOne, x_.get(), x, filter_.get(), filter,
                                    for_forward_.get(), forward_, dnn_.workspace(),
                                    dnn_.workspace_bytes(), &kZero, y_.get(), y),
            "cudnnConvolutionForward");
}

void Convolution::backward_filter(const void* x, const void* dy, void* dfilter) {
  check_dnn(cudnnConvolutionBackwardFilter(dnn_.handle(), &kOne, x_.get(), x, y_.get(), dy,
                                           for_filter_.get(), backward_filter_, dnn_.workspace(),
                                           dnn_.workspace_bytes(), &kZero, filter_.get(), dfilter),
            "cudnnConvolutionBackwardFilter");
}

void Convolution::backward_data(const void* dy, const void* filter, void* dx) {
  check_dnn(cudnnConvolutionBackwardData(dnn_.handle(), &kOne, filter_.get(), filter, y_.get(), dy,
                                         for_data_.get(), backward_data_, dnn_.workspace(),
                                         dnn_.workspace_bytes(), &kZero, x_.get(), dx),
            "cudnnConvolutionBackwardData");
}

Pooling::Pooling(Dnn& dnn, DType dtype, const MaxPool::Options& o)
    : dnn_(dnn),
      x_(make_images(dtype, o.images, o.height, o.width, o.channels)),
      y_(make_images(dtype, o.images, o.output_height(), o.output_width(), o.channels)),
      pooling_(
          make_pooling(CUDNN_POOLING_MAX_DETERMINISTIC, o.window, o.window, o.stride, o.padding)) {}

Pooling::Pooling(Dnn& dnn, DType dtype, const AveragePool::Options& o)
    : dnn_(dnn),
      x_(make_images(dtype, o.images, o.height, o.width, o.channels)),
      y_(make_images(dtype, o.images, 1, 1, o.channels)),
      pooling_(make_pooling(CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING, o.height, o.width, 1, 0)) {
}

void Pooling::forward(const void* x, void* y) {
  check_dnn(
      cudnnPoolingForward(dnn_.handle(), pooling_.get(), &kOne, x_.get(), x, &kZero, y_.get(), y),
      "cudnnPoolingForward");
}

void Pooling::backward(const void* x, const void* y, const void* dy, void* dx) {
  check_dnn(cudnnPoolingBackward(dnn_.handle(), pooling_.get(), &kOne, y_.get(), y, y_.get(), dy,
                                 x_.get(), x, &kZero, x_.get(), dx),
            "cudnnPoolingBackward");
}

}  // namespace kolo::trainer::cuda
