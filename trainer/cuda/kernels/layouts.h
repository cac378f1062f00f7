#pragma once

#include <cstddef>

#include "comm/base/dtype.h"
#include "comm/base/native_stream.h"
#include "trainer/cuda/kernels/portable.h"
#include "trainer/tensor.h"

namespace kolo::trainer::cuda {

/// Two layouts of the same elements. Linear layers use the joined layout. In the split layout, each
/// head's matrix is contiguous, so that products of all heads are one batch with a constant stride.
///
///     joined [sequences · length, parts · heads · head_width]
///     split  [parts, sequences · heads, length, head_width]
///
/// Query, key and value are three parts; the output of attention is one part.
struct HeadShape {
  std::size_t parts;
  std::size_t sequences;
  std::size_t length;
  std::size_t heads;
  std::size_t head_width;

  KOLO_HOST_DEVICE constexpr std::size_t count() const {
    return parts * sequences * length * heads * head_width;
  }

  /// The index in the joined layout of element `index` of the split layout.
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

/// These copy elements of `dtype` from one layout to the other. Both arrays are aligned to 16
/// bytes.
void split_heads(NativeStream stream, DType dtype, const HeadShape& shape, const void* joined,
                 void* split);
void join_heads(NativeStream stream, DType dtype, const HeadShape& shape, const void* split,
                void* joined);

/// Two layouts of a convolution's weights: that of the parameter, and cuDNN's packed layout for
/// NHWC images, whose input channels are padded with zeros.
///
///     parameter [outputs, inputs, kernel, kernel] float32
///     packed    [outputs, kernel, kernel, padded_inputs] of a dtype of activations
struct FilterShape {
  std::size_t outputs;
  std::size_t inputs;
  std::size_t padded_inputs;
  std::size_t kernel;  ///< Height and width of a kernel.

  KOLO_HOST_DEVICE constexpr std::size_t parameter_count() const {
    return outputs * inputs * kernel * kernel;
  }
  KOLO_HOST_DEVICE constexpr std::size_t packed_count() const {
    return outputs * kernel * kernel * padded_inputs;
  }
  KOLO_HOST_DEVICE constexpr std::size_t input_of(std::size_t packed) const {
    return packed % padded_inputs;
  }
  /// The index in the parameter of packed element `packed`, whose input channel is not padding.
  KOLO_HOST_DEVICE constexpr std::size_t parameter_index(std::size_t packed) const {
    const std::size_t place = packed / padded_inputs % (kernel * kernel);
    const std::size_t output = packed / padded_inputs / (kernel * kernel);
    return (output * inputs + input_of(packed)) * kernel * kernel + place;
  }
};

/// Converts a parameter to the packed layout. Bits: equal to the reference, except for 16-bit NaNs.
void pack_filter(NativeStream stream, const FilterShape& shape, const float* parameter, DType dtype,
                 void* packed);
/// Converts a packed gradient to the layout of the parameter, without padding; with kAdd, it adds
/// the gradient to `parameter`.
void unpack_filter(NativeStream stream, const FilterShape& shape, DType dtype, const void* packed,
                   Into mode, float* parameter);

}  // namespace kolo::trainer::cuda
