#pragma once

#include <bit>
#include <cstdint>

#include "comm/kernels/host_device.h"

/// The order of top-k: by magnitude, compared as integers ("keys"). Pure.
namespace kolo::radix {

/// Replaces every NaN by the canonical NaN.
KOLO_HOST_DEVICE inline float canonical(float value) {
  return value == value ? value : std::bit_cast<float>(0x7fc00000u);
}

/// Adds the new gradient to the residual.
KOLO_HOST_DEVICE inline float accumulate(float residual, float gradient) {
  return canonical(residual + gradient);
}

/// The smallest key of a value that is not finite.
inline constexpr std::uint32_t kInfinityKey = 0x7f800000u;

/// Returns the key of a result of `accumulate`. NaN is above infinity; -0 and +0 are equal.
KOLO_HOST_DEVICE inline std::uint32_t key_of(float value) {
  return std::bit_cast<std::uint32_t>(value) & 0x7fffffffu;
}

}  // namespace kolo::radix
