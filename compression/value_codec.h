#pragma once

#include <cstddef>
#include <span>

#include "comm/base/dtype.h"

namespace kolo {

/// The encoding of values in a sparse payload: float32, bfloat16, or float16 multiplied by a power
/// of two, so that neither large nor small values leave its range.
///
/// Split:   v = decode(encode(a)) and r = a - v add up to a exactly: both are multiples of a's last
///          place, and r is smaller than v or a. This holds for every finite a up to twice the
///          largest value of the wire at that exponent; with `fitting_exponent` that is every
///          value.
/// Threads: pure; any.

/// The exponent at which `largest`, a finite magnitude, fills the upper half of float16's range,
/// except for one bit. Nothing up to it saturates (beyond 2^127 by less than a last place), and
/// values 2^-38 times as large are still told from zero. Zero for the other wires.
int fitting_exponent(DType wire, float largest);

/// True if values of this wire can have this exponent.
bool is_exponent_of(DType wire, int exponent);

/// out[i] = round(values[i] * 2^exponent), to nearest even, once. A value beyond the range of the
/// wire becomes the largest finite one of the same sign.
///
/// Shape:  `out` has values.size() elements of `wire`, at any alignment.
/// Before: values are finite. Errors: UsageError for a wire that is not one of the three, or an
///         exponent that `fitting_exponent` cannot give.
void encode_values(DType wire, int exponent, std::span<const float> values,
                   std::span<std::byte> out);

/// values[i] = in[i] * 2^-exponent, exactly.
void decode_values(DType wire, int exponent, std::span<const std::byte> in,
                   std::span<float> values);

/// The values that the receiver will see: decode(encode(values)). `rounded` may be `values`.
void round_to_wire(DType wire, int exponent, std::span<const float> values,
                   std::span<float> rounded);

}  // namespace kolo
