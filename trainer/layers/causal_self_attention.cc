#include "trainer/layers/causal_self_attention.h"

#include <algorithm>
#include <cmath>

#include "comm/base/check.h"
#include "trainer/kernels/softmax.h"

namespace kolo::trainer {

CausalSelfAttention::CausalSelfAttention(Device& device, const Options& options)
    : options_(options),
      head_width_(options.width / options.heads),
      factor_(1.0f / std::sqrt(static_cast<float>(head_width_))),
      products_(device.products()),
      output_({options.sequences * options.length, options.width}),
      input_gradient_({options.sequences * options.length, 3 * options.width}),
      weights_(keeps_weights()
                   ? Shape{options.sequences * options.heads, options.length, options.length}
                   : Shape{kBlockRows, options.length}),
      score_gradient_({std::min(kBlockRows, options.length), options.length}),
      input_factor_(device, input_gradient_.size()),
      gradient_factor_(device, output_.size()),
      block_factor_(device, score_gradient_.size()) {
  check(options.width % options.heads == 0, "the number of heads divides the width");
}

template <typename Visit>
void CausalSelfAttention::for_heads(const Visit& visit) const {
  for (std::size_t s = 0; s < options_.sequences; ++s) {
    for (std::size_t h = 0; h < options_.heads; ++h) {
      const std::size_t first_row = s * options_.length;
      const std::size_t column = h * head_width_;
      visit(Head{.index = s * options_.heads + h,
                 .input_offset = first_row * 3 * options_.width + column,
                 .output_offset = first_row * options_.width + column});
    }
  }
}

std::size_t CausalSelfAttention::offset_of(const Head& head, Part part, Block rows) const {
  return head.input_offset + part * options_.width + rows.begin * 3 * options_.width;
}

Operand CausalSelfAttention::rows_of(const Head& head, Part part, Block rows) const {
  return input_factor_.operand(offset_of(head, part, rows), rows.rows(), head_width_,
                               3 * options_.width);
}

Matrix CausalSelfAttention::gradient_rows(const Head& head, Part part, Block rows) {
  return {input_gradient_.data() + offset_of(head, part, rows), rows.rows(), head_width_,
          3 * options_.width};
}

std::span<float> CausalSelfAttention::weights_of(const Head& head, Block block) {
  const std::size_t offset =
      keeps_weights() ? (head.index * options_.length + block.begin) * options_.length : 0;
  return weights_.span().subspan(offset, block.rows() * block.end);
}

void CausalSelfAttention::weigh(const Head& head, Block block) {
  const std::span<float> weights = weights_of(head, block);
  products_.multiply(rows_of(head, kQuery, block), transposed(rows_of(head, kKey, {0, block.end})),
                     {weights.data(), block.rows(), block.end, block.end});
  causal_softmax(weights, block.end, factor_);
}

std::span<const float> CausalSelfAttention::forward(std::span<const float> input, const Pass&) {
  input_factor_.assign(input);
  for_heads([&](const Head& head) {
    for (std::size_t begin = 0; begin < options_.length; begin += kBlockRows) {
      const Block block{begin, std::min(begin + kBlockRows, options_.length)};
      weigh(head, block);
      block_factor_.assign(weights_of(head, block));
      float* const out = output_.data() + head.output_offset + begin * options_.width;
      products_.multiply(block_factor_.operand(block.rows(), block.end),
                         rows_of(head, kValue, {0, block.end}),
                         {out, block.rows(), head_width_, options_.width});
    }
  });
  return output_.span();
}

std::span<const float> CausalSelfAttention::backward(std::span<const float> output_gradient) {
  gradient_factor_.assign(output_gradient);
  for_heads([&](const Head& head) {
    // The last block reaches all keys and values; it stores their gradients, the others add.
    for (std::size_t end = options_.length; end > 0;) {
      const std::size_t begin = (end - 1) / kBlockRows * kBlockRows;
      backward(head, {begin, end});
      end = begin;
    }
  });
  return input_gradient_.span();
}

void CausalSelfAttention::backward(const Head& head, Block block) {
  const Block seen{0, block.end};
  const Into into = block.end == options_.length ? Into::kOverwrite : Into::kAdd;
  const Operand dy = gradient_factor_.operand(head.output_offset + block.begin * options_.width,
                                              block.rows(), head_width_, options_.width);
  if (!keeps_weights()) weigh(head, block);
  const std::span<const float> weights = weights_of(head, block);
  block_factor_.assign(weights);
  products_.multiply(transposed(block_factor_.operand(block.rows(), block.end)), dy,
                     gradient_rows(head, kValue, seen), into);
  const std::span<float> gradient = score_gradient_.span().first(weights.size());
  products_.multiply(dy, transposed(rows_of(head, kValue, seen)),
                     {gradient.data(), block.rows(), block.end, block.end});
  causal_softmax_backward(weights, gradient, block.end, factor_);
  block_factor_.assign(gradient);
  const Operand ds = block_factor_.operand(block.rows(), block.end);
  products_.multiply(ds, rows_of(head, kKey, seen), gradient_rows(head, kQuery, block));
  products_.multiply(transposed(ds), rows_of(head, kQuery, block), gradient_rows(head, kKey, seen),
                     into);
}

}  // namespace kolo::trainer
