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

/// The images of a PaddedShortcut (trainer/layers/images.h): it takes every stride-th row and
/// column of pixels, and fills added channels with zeros.
///
///     input  [images, height, width, input_channels]
///     output [images, output height, output width, output_channels]
struct ShortcutShape {
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  std::size_t images;
  std::size_t height;
  std::size_t width;
  std::size_t input_channels;
  std::size_t output_channels;
  std::size_t stride;

  KOLO_HOST_DEVICE constexpr std::size_t output_height() const { return ceil_div(height, stride); }
  KOLO_HOST_DEVICE constexpr std::size_t output_width() const { return ceil_div(width, stride); }
  KOLO_HOST_DEVICE constexpr std::size_t input_count() const {
    return images * height * width * input_channels;
  }
  KOLO_HOST_DEVICE constexpr std::size_t output_count() const {
    return images * output_height() * output_width() * output_channels;
  }
  /// The index in the input of element `output`, or kNone in an added channel.
  KOLO_HOST_DEVICE constexpr std::size_t input_of(std::size_t output) const {
    const std::size_t channel = output % output_channels;
    if (channel >= input_channels) return kNone;
    std::size_t pixel = output / output_channels;
    const std::size_t x = pixel % output_width();
    pixel /= output_width();
    const std::size_t y = pixel % output_height();
    const std::size_t image = pixel / output_height();
    return ((image * height + y * stride) * width + x * stride) * input_channels + channel;
  }
  /// The index in the output of element `input`, or kNone in a pixel that is not taken.
  KOLO_HOST_DEVICE constexpr std::size_t output_of(std::size_t input) const {
    const std::size_t channel = input % input_channels;
    std::size_t pixel = input / input_channels;
    const std::size_t x = pixel % width;
    pixel /= width;
    const std::size_t y = pixel % height;
    if (x % stride != 0 || y % stride != 0) return kNone;
    const std::size_t row = pixel / height * output_height() + y / stride;
    return (row * output_width() + x / stride) * output_channels + channel;
  }
};

/// Computes the output of the shortcut, and the gradient of its input from that of its output. Both
/// copy elements of `dtype`.
void take_shortcut(NativeStream stream, DType dtype, const ShortcutShape& shape, const void* x,
                   void* y);
void take_shortcut_back(NativeStream stream, DType dtype, const ShortcutShape& shape,
                        const void* dy, void* dx);

}  // namespace kolo::trainer::cuda
