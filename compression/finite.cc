#include "compression/finite.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace kolo {
namespace {

/// Numbers between two checks for a bad one: without a branch for each number, compilers vectorise
/// the loop.
constexpr std::size_t kNumbersPerCheck = 1024;

/// Works on floating-point numbers as `Bits`; infinities and NaN have all bits of `exponent` set.
template <typename Bits>
bool all_below(const void* data, std::size_t count, Bits exponent) {
  const std::span bits(static_cast<const Bits*>(data), count);
  for (std::size_t begin = 0; begin < count; begin += kNumbersPerCheck) {
    Bits bad = 0;
    for (const Bits value : bits.subspan(begin, std::min(kNumbersPerCheck, count - begin))) {
      bad = static_cast<Bits>(bad | static_cast<Bits>((value & exponent) == exponent));
    }
    if (bad != 0) return false;
  }
  return true;
}

}  // namespace

bool are_finite(std::span<const float> values) {
  return all_below(values.data(), values.size(), std::uint32_t{0xff} << 23);
}

bool all_finite(const BufferView& tensor) {
  if (tensor.memory == MemoryKind::kDevice) return true;
  switch (tensor.dtype) {
    case DType::kFloat64:
      return all_below(tensor.data, tensor.count, std::uint64_t{0x7ff} << 52);
    case DType::kFloat32:
      return are_finite({static_cast<const float*>(tensor.data), tensor.count});
    case DType::kFloat16:
      return all_below(tensor.data, tensor.count, std::uint16_t{0x7c00});
    case DType::kBFloat16:
      return all_below(tensor.data, tensor.count, std::uint16_t{0x7f80});
    default:
      return true;
  }
}

}  // namespace kolo
