#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace kolo::trainer {

/// Attention weights in place, for the last `rows` of `length` positions: row i, of position
/// p = length - rows + i, becomes softmax(factor · scores[i, 0 … p]), zero beyond p.
/// Shape: scores is [rows, length].
void causal_softmax(std::span<float> scores, std::size_t length, float factor);

/// From weights and the gradient of the weights to the gradient of the unscaled scores, in place in
/// `gradient`: factor · w (g - sum(g w)) up to position p, zero beyond it.
void causal_softmax_backward(std::span<const float> weights, std::span<float> gradient,
                             std::size_t length, float factor);

/// Attention weights in place where every row sees all positions: softmax(factor · scores[i]).
/// Shape: scores is [rows, length].
void softmax(std::span<float> scores, std::size_t length, float factor);

/// As `causal_softmax_backward` for them: factor · w (g - sum(g w)).
void softmax_backward(std::span<const float> weights, std::span<float> gradient, std::size_t length,
                      float factor);

/// Cross-entropy of one row: returns -log softmax(logits)[target] in nats, and overwrites `logits`
/// with its gradient times `weight`: weight · (softmax(logits) - onehot(target)).
/// Before: target < logits.size().
float softmax_cross_entropy(std::span<float> logits, std::size_t target, float weight);

}  // namespace kolo::trainer
