#include "trainer/cuda/compute/dnn_descriptors.h"

#include "comm/base/check.h"
#include "trainer/cuda/compute/dnn.h"

namespace kolo::trainer::cuda {
namespace {

cudnnDataType_t dnn_type(DType dtype) {
  if (dtype == DType::kBFloat16) return CUDNN_DATA_BFLOAT16;
  if (dtype == DType::kFloat16) return CUDNN_DATA_HALF;
  return CUDNN_DATA_FLOAT;
}

}  // namespace

void TensorTraits::close(Value descriptor) noexcept {
  log_dnn(cudnnDestroyTensorDescriptor(descriptor), "cudnnDestroyTensorDescriptor");
}
void FilterTraits::close(Value descriptor) noexcept {
  log_dnn(cudnnDestroyFilterDescriptor(descriptor), "cudnnDestroyFilterDescriptor");
}
void ConvolutionTraits::close(Value descriptor) noexcept {
  log_dnn(cudnnDestroyConvolutionDescriptor(descriptor), "cudnnDestroyConvolutionDescriptor");
}
void PoolingTraits::close(Value descriptor) noexcept {
  log_dnn(cudnnDestroyPoolingDescriptor(descriptor), "cudnnDestroyPoolingDescriptor");
}

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

ConvolutionDescriptor make_convolution(cudnnMathType_t math) {
  cudnnConvolutionDescriptor_t descriptor = nullptr;
  check_dnn(cudnnCreateConvolutionDescriptor(&descriptor), "cudnnCreateConvolutionDescriptor");
  ConvolutionDescriptor handle(descriptor);
  check_dnn(cudnnSetConvolution2dDescriptor(descriptor, 0, 0, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION,
                                            CUDNN_DATA_FLOAT),
            "cudnnSetConvolution2dDescriptor");
  check_dnn(cudnnSetConvolutionMathType(descriptor, math), "cudnnSetConvolutionMathType");
  return handle;
}

PoolingDescriptor make_max_pooling() {
  cudnnPoolingDescriptor_t descriptor = nullptr;
  check_dnn(cudnnCreatePoolingDescriptor(&descriptor), "cudnnCreatePoolingDescriptor");
  PoolingDescriptor handle(descriptor);
  check_dnn(cudnnSetPooling2dDescriptor(descriptor, CUDNN_POOLING_MAX_DETERMINISTIC,
                                        CUDNN_PROPAGATE_NAN, 2, 2, 0, 0, 2, 2),
            "cudnnSetPooling2dDescriptor");
  return handle;
}

}  // namespace kolo::trainer::cuda
