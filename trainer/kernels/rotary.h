#pragma once

#include <span>

namespace kolo::trainer {

/// y = x, with pairs of elements turned. x holds vectors of 2n elements side by side, n =
/// cosines.size(); pair i of each is (x[i], x[i + n]) and turns by the angle whose cosine and sine
/// are those at i.
/// Before: equal sizes of x and y, multiples of 2n; y is not x.
void rotate_pairs(std::span<const float> x, std::span<const float> cosines,
                  std::span<const float> sines, std::span<float> y);

}  // namespace kolo::trainer
