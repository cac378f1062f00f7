#pragma once

#include <cstddef>

#include "comm/base/dtype.h"
#include "comm/base/native_stream.h"
#include "trainer/cuda/kernels/portable.h"

namespace kolo::trainer::cuda {

/// Two layouts of a convolution's weights: that of the parameter, and that of cuDNN for NHWC
/// images, whose input channels are padded with zeros.
///
///     parameter [outputs, inputs, kernel, kernel] float32
///     packed    [outputs, kernel, kernel, padded_inputs] of a dtype of activations
struct FilterShape {
  std::size_t outputs;
  std::size_t inputs;
  std::size_t padded_inputs;
  std::size_t kernel;  ///< Height and width.

  KOLO_HOST_DEVICE constexpr std::size_t parameter_count() const {
    return outputs * inputs * kernel * kernel;
  }
  KOLO_HOST_DEVICE constexpr std::size_t packed_count() const {
    return outputs * kernel * kernel * padded_inputs;
  }
  KOLO_HOST_DEVICE constexpr std::size_t input_of(std::size_t packed) const {
    return packed % padded_inputs;
  }
  /// Index in the parameter of packed element `packed`, whose input channel is not padding.
  KOLO_HOST_DEVICE constexpr std::size_t parameter_index(std::size_t packed) const {
    const std::size_t place = packed / padded_inputs % (kernel * kernel);
    const std::size_t output = packed / padded_inputs / (kernel * kernel);
    return (output * inputs + input_of(packed)) * kernel * kernel + place;
  }
};

/// Bits: those of the reference, a NaN in 16 bits aside.
void pack_filter(NativeStream stream, const FilterShape& shape, const float* parameter, DType dtype,
                 void* packed);
/// For gradients: drops the padding.
void unpack_filter(NativeStream stream, const FilterShape& shape, DType dtype, const void* packed,
                   float* parameter);

namespace reference {
void pack_filter(const FilterShape& shape, const float* parameter, DType dtype, void* packed);
void unpack_filter(const FilterShape& shape, DType dtype, const void* packed, float* parameter);
}  // namespace reference

}  // namespace kolo::trainer::cuda
