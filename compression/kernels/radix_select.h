#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "comm/device/kernels/host_device.h"

/// The k-th largest magnitude, digit by digit: shared by the processor and the device kernels of
/// top-k. Pure.
namespace kolo::radix {

/// Digits of a 31-bit key from the highest down. The first holds exponent and four bits of the
/// fraction: few gradients share it with the threshold.
struct Digit {
  unsigned shift;
  unsigned bits;
  KOLO_HOST_DEVICE constexpr std::uint32_t bins() const { return 1u << bits; }
  KOLO_HOST_DEVICE constexpr std::uint32_t of(std::uint32_t key) const {
    return (key >> shift) & (bins() - 1);
  }
  /// The digits of `key` before this one.
  KOLO_HOST_DEVICE constexpr std::uint32_t prefix(std::uint32_t key) const {
    return key >> (shift + bits);
  }
};
inline constexpr int kDigitCount = 3;
KOLO_HOST_DEVICE constexpr Digit digit(int i) {
  return i == 0 ? Digit{19, 12} : i == 1 ? Digit{9, 10} : Digit{0, 9};
}

/// Every NaN becomes the same one.
KOLO_HOST_DEVICE inline float canonical(float value) {
  return value == value ? value : std::bit_cast<float>(0x7fc00000u);
}

/// The residual plus the new gradient.
KOLO_HOST_DEVICE inline float accumulate(float residual, float gradient) {
  return canonical(residual + gradient);
}

/// The least key of a value that is not finite.
inline constexpr std::uint32_t kInfinityKey = 0x7f800000u;

/// Orders results of `accumulate` by magnitude; NaN is above infinity, -0 equals +0.
KOLO_HOST_DEVICE inline std::uint32_t key_of(float value) {
  return std::bit_cast<std::uint32_t>(value) & 0x7fffffffu;
}

/// The k-th largest key as far as its digits are known: its first digits are `prefix`, and `need`
/// of the keys with that prefix are among the k.
struct Selection {
  std::uint32_t prefix = 0;
  std::uint32_t need = 0;
};

/// The bin of the need-th element from the top, where counts[i] elements are in bin i.
struct Bin {
  std::uint32_t index = 0;
  std::uint32_t need = 0;  ///< Number of its elements that are needed.
};

/// Before: 1 <= need <= the sum of all counts.
KOLO_HOST_DEVICE inline Bin find_bin(const std::uint32_t* counts, std::uint32_t bins,
                                     std::uint32_t need) {
  std::uint32_t bin = bins - 1;
  while (counts[bin] < need) need -= counts[bin--];
  return {bin, need};
}

/// Descends by one digit.
KOLO_HOST_DEVICE inline Selection refined(const Selection& selection, const Digit& next,
                                          const Bin& bin) {
  return {selection.prefix << next.bits | bin.index, bin.need};
}

/// Number of elements that precede one in the result, given how many before it are above the
/// threshold and how many equal it. Only the first `need` equals count.
KOLO_HOST_DEVICE constexpr std::uint32_t place(std::uint32_t above, std::uint32_t equal,
                                               std::uint32_t need) {
  return above + (equal < need ? equal : need);
}

}  // namespace kolo::radix
