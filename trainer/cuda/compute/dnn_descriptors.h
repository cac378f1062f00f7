#pragma once

#include <cudnn.h>

#include <cstddef>

#include "comm/base/dtype.h"
#include "comm/base/unique_handle.h"

namespace kolo::trainer::cuda {

// Factors of cuDNN's results and of what is there already, passed by address.
inline constexpr float kOne = 1.0f;
inline constexpr float kZero = 0.0f;

// Descriptors of cuDNN, each closed by its owner.

struct TensorTraits {
  using Value = cudnnTensorDescriptor_t;
  static Value invalid() noexcept { return nullptr; }
  static void close(Value descriptor) noexcept;
};
struct FilterTraits {
  using Value = cudnnFilterDescriptor_t;
  static Value invalid() noexcept { return nullptr; }
  static void close(Value descriptor) noexcept;
};
struct ConvolutionTraits {
  using Value = cudnnConvolutionDescriptor_t;
  static Value invalid() noexcept { return nullptr; }
  static void close(Value descriptor) noexcept;
};
struct PoolingTraits {
  using Value = cudnnPoolingDescriptor_t;
  static Value invalid() noexcept { return nullptr; }
  static void close(Value descriptor) noexcept;
};
using TensorDescriptor = UniqueHandle<TensorTraits>;
using FilterDescriptor = UniqueHandle<FilterTraits>;
using ConvolutionDescriptor = UniqueHandle<ConvolutionTraits>;
using PoolingDescriptor = UniqueHandle<PoolingTraits>;

/// [images, height, width, channels], contiguous.
TensorDescriptor make_images(DType dtype, std::size_t images, std::size_t height, std::size_t width,
                             std::size_t channels);
/// [outputs, kernel, kernel, inputs], contiguous.
FilterDescriptor make_filter(DType dtype, std::size_t outputs, std::size_t kernel,
                             std::size_t inputs);
/// Stride 1, no padding, not mirrored; accumulates in float32.
ConvolutionDescriptor make_convolution(cudnnMathType_t math);
/// The largest of each 2 x 2 window; among equals, a gradient goes to the same one in every run.
PoolingDescriptor make_max_pooling();

}  // namespace kolo::trainer::cuda
