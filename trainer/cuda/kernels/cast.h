#pragma once

#include <cstddef>

#include "comm/base/dtype.h"
#include "comm/base/native_stream.h"

namespace kolo::trainer::cuda {

/// Rounds `count` float32 values to `dtype`, to nearest with ties to even.
///
/// Shape:  device memory aligned to 16 bytes. Bits: those of the reference, a NaN in 16 bits aside.
void cast(NativeStream stream, const float* from, std::size_t count, DType dtype, void* into);

namespace reference {
void cast(const float* from, std::size_t count, DType dtype, void* into);
}  // namespace reference

}  // namespace kolo::trainer::cuda
