#pragma once

#include <span>

#include "comm/base/half.h"

namespace kolo::trainer {

/// Rounds to nearest, ties to even, as `to_bfloat16`. Before: equal sizes.
void round_to_bfloat16(std::span<const float> values, std::span<BFloat16> out);

/// Exact; NaN stays NaN. Before: equal sizes.
void widen(std::span<const BFloat16> values, std::span<float> out);

}  // namespace kolo::trainer
