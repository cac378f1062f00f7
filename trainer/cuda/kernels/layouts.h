#pragma once

#include <cstddef>

#include "comm/base/dtype.h"
#include "comm/base/native_stream.h"
#include "trainer/cuda/kernels/portable.h"

namespace kolo::trainer::cuda {

/// Two layouts of the same elements: joined as for linear layers, and split with each head's matrix
/// in one piece, so that products of all heads are one batch with a constant stride.
///
///     joined [sequences · length, parts · heads · head_width]
///     split  [parts, sequences · heads, length, head_width]
///
/// Three parts are query, key and value; one part is the output of attention.
struct HeadShape {
  std::size_t parts;
  std::size_t sequences;
  std::size_t length;
  std::size_t heads;
  std::size_t head_width;

  KOLO_HOST_DEVICE constexpr std::size_t count() const {
    return parts * sequences * length * heads * head_width;
  }

  /// Index in `joined` of element `index` of `split`.
  KOLO_HOST_DEVICE constexpr std::size_t joined_index(std::size_t index) const {
    const std::size_t column = index % head_width;
    index /= head_width;
    const std::size_t position = index % length;
    index /= length;
    const std::size_t head = index % heads;
    index /= heads;
    const std::size_t sequence = index % sequences;
    const std::size_t part = index / sequences;
    const std::size_t row = sequence * length + position;
    return ((row * parts + part) * heads + head) * head_width + column;
  }
};

/// Shape: both aligned to 16 bytes, elements of `dtype`. Bits: exact copies.
void split_heads(NativeStream stream, DType dtype, const HeadShape& shape, const void* joined,
                 void* split);
void join_heads(NativeStream stream, DType dtype, const HeadShape& shape, const void* split,
                void* joined);

/// Two layouts of a convolution's weights: the parameter's, and cuDNN's for NHWC images, whose
/// input channels are padded with zeros.
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

/// Bits: as the reference, except for NaNs in 16 bits.
void pack_filter(NativeStream stream, const FilterShape& shape, const float* parameter, DType dtype,
                 void* packed);
/// For gradients: drops the padding.
void unpack_filter(NativeStream stream, const FilterShape& shape, DType dtype, const void* packed,
                   float* parameter);

}  // namespace kolo::trainer::cuda
