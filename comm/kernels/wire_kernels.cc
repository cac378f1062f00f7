#include "comm/kernels/wire_kernels.h"

#include <cmath>

#include "comm/kernels/reference_kernels.h"
#include "comm/kernels/simd_kernels.h"

namespace kolo {

std::size_t to_wire(DType wire, void* dst, DType src_dtype, const void* src, std::size_t count,
                    int exponent) {
  if (const auto done = simd::to_wire(wire, dst, src_dtype, src, count, exponent)) return *done;
  return reference::to_wire(wire, dst, src_dtype, src, count, exponent);
}

std::uint16_t from_wire(DType dst_dtype, void* dst, DType wire, const void* src, std::size_t count,
                        int exponent, Stores stores) {
  if (const auto done = simd::from_wire(dst_dtype, dst, wire, src, count, exponent, stores)) {
    return *done;
  }
  convert(dst_dtype, dst, wire, src, count, std::ldexp(1.0, -exponent), stores);
  return reference::largest_magnitude(src, count);
}

}  // namespace kolo
