#include "trainer/layers/causal_self_attention.h"

#include <cmath>

#include "comm/base/check.h"
#include "trainer/kernels/softmax.h"

namespace kolo::trainer {

CausalSelfAttention::CausalSelfAttention(const Options& options)
    : options_(options),
      head_width_(options.width / options.heads),
      factor_(1.0f / std::sqrt(static_cast<float>(head_width_))),
      weights_({options.sequences, options.heads, options.length, options.length}),
      output_({options.sequences * options.length, options.width}),
      input_gradient_({options.sequences * options.length, 3 * options.width}),
      score_gradient_({options.length, options.length}) {
  check(options.width % options.heads == 0, "the number of heads divides the width");
}

std::size_t CausalSelfAttention::packed_offset(std::size_t sequence, std::size_t head,
                                               Part part) const {
  return (sequence * options_.length * 3 + part) * options_.width + head * head_width_;
}

Operand CausalSelfAttention::packed(const float* data, std::size_t offset) const {
  return {data + offset, options_.length, head_width_, 3 * options_.width};
}

std::span<float> CausalSelfAttention::weights_of(std::size_t sequence, std::size_t head) {
  const std::size_t size = options_.length * options_.length;
  return weights_.span().subspan((sequence * options_.heads + head) * size, size);
}

std::span<const float> CausalSelfAttention::forward(std::span<const float> input) {
  input_ = input;
  const std::size_t length = options_.length;
  for (std::size_t s = 0; s < options_.sequences; ++s) {
    for (std::size_t h = 0; h < options_.heads; ++h) {
      const Operand query = packed(input.data(), packed_offset(s, h, kQuery));
      const Operand key = packed(input.data(), packed_offset(s, h, kKey));
      const Operand value = packed(input.data(), packed_offset(s, h, kValue));
      const std::span<float> weights = weights_of(s, h);
      multiply(query, transposed(key), {weights.data(), length, length, length});
      causal_softmax(weights, length, factor_);
      float* out = output_.data() + s * length * options_.width + h * head_width_;
      multiply(operand(weights.data(), length, length), value,
               {out, length, head_width_, options_.width});
    }
  }
  return output_.span();
}

std::span<const float> CausalSelfAttention::backward(std::span<const float> output_gradient) {
  const std::size_t length = options_.length;
  const auto gradient = [&](std::size_t s, std::size_t h, Part part) {
    return Matrix{input_gradient_.data() + packed_offset(s, h, part), length, head_width_,
                  3 * options_.width};
  };
  for (std::size_t s = 0; s < options_.sequences; ++s) {
    for (std::size_t h = 0; h < options_.heads; ++h) {
      const Operand query = packed(input_.data(), packed_offset(s, h, kQuery));
      const Operand key = packed(input_.data(), packed_offset(s, h, kKey));
      const Operand value = packed(input_.data(), packed_offset(s, h, kValue));
      const Operand dy = {output_gradient.data() + s * length * options_.width + h * head_width_,
                          length, head_width_, options_.width};
      const std::span<float> weights = weights_of(s, h);
      multiply(transposed(operand(weights.data(), length, length)), dy, gradient(s, h, kValue));
      multiply(dy, transposed(value), {score_gradient_.data(), length, length, length});
      causal_softmax_backward(weights, score_gradient_.span(), length, factor_);
      const Operand ds = operand(score_gradient_.data(), length, length);
      multiply(ds, key, gradient(s, h, kQuery));
      multiply(transposed(ds), query, gradient(s, h, kKey));
    }
  }
  return input_gradient_.span();
}

}  // namespace kolo::trainer
