#pragma once

#include <cstddef>
#include <span>

#include "comm/base/dtype.h"

namespace kolo {

/// How the values of a sparse payload are written: as float32, bfloat16, or as float16 multiplied
/// by a power of two, so that neither large nor small values leave its range.
///
/// Split:   v = decode(encode(a)) and r = a - v add up to a exactly: both are multiples of a's last
///          place, and r is smaller than v or a. Holds for every finite a up to twice the largest
///          value that the wire can hold at that exponent; with `fitting_exponent` that is all.
/// Threads: pure; any.

/// The exponent at which `largest`, a finite magnitude, fills the upper half of float16's range,
/// but one bit: nothing up to it saturates (beyond 2^127 by less than a last place), and values
/// 2^-38 of it are still told from zero. Zero for the other wires.
int fitting_exponent(DType wire, float largest);

/// Whether values of this wire can have this exponent.
bool is_exponent_of(DType wire, int exponent);

/// out[i] = round(values[i] * 2^exponent), to nearest even, once; beyond the wire's range it is the
/// largest finite value of the same sign.
///
/// Shape:  `out` has values.size() elements of `wire`, at any alignment.
/// Before: values are finite. Errors: UsageError for a wire that is not one of the three, or an
///         exponent that `fitting_exponent` cannot give.
void encode_values(DType wire, int exponent, std::span<const float> values,
                   std::span<std::byte> out);

/// values[i] = in[i] * 2^-exponent, exactly.
void decode_values(DType wire, int exponent, std::span<const std::byte> in,
                   std::span<float> values);

/// What the receiver will see: decode(encode(values)). `rounded` may be `values`.
void round_to_wire(DType wire, int exponent, std::span<const float> values,
                   std::span<float> rounded);

}  // namespace kolo
