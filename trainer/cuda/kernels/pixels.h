#pragma once

#include <cstddef>
#include <cstdint>

#include "comm/base/dtype.h"
#include "comm/base/native_stream.h"

namespace kolo::trainer::cuda {

/// Grey pixels to elements of `dtype`: channel 0 is table[byte], the padding channels are zero.
///
/// Shape:  bytes [count], table [256], into [count, channels].
/// Bits:   those of the reference, a NaN in 16 bits aside.
struct PixelCast {
  const std::uint8_t* bytes;
  const float* table;
  std::size_t count;
  std::size_t channels;
  DType dtype;
  void* into;
};

void scale_pixels(NativeStream stream, const PixelCast& pixels);

namespace reference {
void scale_pixels(const PixelCast& pixels);
}  // namespace reference

}  // namespace kolo::trainer::cuda
