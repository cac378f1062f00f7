#pragma once

#include <span>

namespace kolo::trainer {

/// y = max(x, 0) and slope = 1 where x > 0, else 0. Before: equal sizes.
void relu(std::span<const float> x, std::span<float> y, std::span<float> slope);

/// y = x · Φ(x) in the tanh approximation, and its derivative at x: the backward pass is then one
/// product and needs no second tanh. Before: equal sizes.
///
/// Source: Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016.
void gelu(std::span<const float> x, std::span<float> y, std::span<float> slope);

/// y = tanh(x), and its derivative at x. Before: equal sizes.
void tanh(std::span<const float> x, std::span<float> y, std::span<float> slope);

}  // namespace kolo::trainer
