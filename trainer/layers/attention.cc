#include "trainer/layers/attention.h"

#include <algorithm>
#include <cmath>

#include "comm/base/check.h"
#include "trainer/kernels/kernels.h"

namespace kolo::trainer {
namespace {

constexpr double kBase = 10000.0;

}  // namespace

SelfAttention::SelfAttention(Device& device, const Options& options)
    : options_(options),
      head_width_(options.width / options.heads),
      factor_(1.0f / std::sqrt(static_cast<float>(head_width_))),
      products_(device.products()),
      dropout_(options.dropout),
      past_({options.chunk ? options.length : 0, 3 * options.width}),
      output_({options.rows(), options.width}),
      input_gradient_({options.chunk ? 0 : options.rows(), 3 * options.width}),
      weights_(keeps_weights()
                   ? Shape{options.sequences * options.heads, options.length, options.length}
                   : Shape{kBlockRows, options.length}),
      score_gradient_({std::min(kBlockRows, options.length), options.length}),
      kept_factors_(
          {options.dropout.share > 0.0f ? score_gradient_.shape()[0] : 0, options.length}),
      dropped_(kept_factors_.shape()),
      input_factor_(device, past_.size() + input_gradient_.size()),
      gradient_factor_(device, output_.size()),
      block_factor_(device, score_gradient_.size()) {
  check(options.width % options.heads == 0, "the number of heads divides the width");
  check(!options.chunk || options.sequences == 1, "passes go on with one sequence");
}

void SelfAttention::set_lengths(std::span<const std::int32_t> lengths) {
  check(options_.mask == Mask::kLengths && lengths.size() == options_.sequences,
        "attention within lengths takes one for each sequence");
  lengths_ = lengths;
}

std::size_t SelfAttention::length_of(std::size_t sequence) const {
  return options_.mask == Mask::kCausal ? options_.length
                                        : static_cast<std::size_t>(lengths_[sequence]);
}

template <typename Visit>
void SelfAttention::for_heads(const Visit& visit) const {
  for (std::size_t s = 0; s < options_.sequences; ++s) {
    for (std::size_t h = 0; h < options_.heads; ++h) {
      const std::size_t first_row = s * options_.length;
      const std::size_t column = h * head_width_;
      visit(Head{.index = s * options_.heads + h,
                 .sequence = s,
                 .length = length_of(s),
                 .input_offset = first_row * 3 * options_.width + column,
                 .output_offset = first_row * options_.width + column});
    }
  }
}

SelfAttention::Block SelfAttention::block_from(const Head& head, std::size_t begin) const {
  const std::size_t end = std::min(begin + kBlockRows, head.length);
  return {.begin = begin, .end = end, .seen = options_.mask == Mask::kCausal ? end : head.length};
}

void SelfAttention::clear_padding(std::span<float> rows) const {
  if (options_.mask == Mask::kCausal) return;
  const std::size_t width = rows.size() / (options_.sequences * options_.length);
  for (std::size_t s = 0; s < options_.sequences; ++s) {
    const auto sequence = rows.subspan(s * options_.length * width, options_.length * width);
    std::ranges::fill(sequence.subspan(length_of(s) * width), 0.0f);
  }
}

std::size_t SelfAttention::offset_of(const Head& head, Part part, Range rows) const {
  return head.input_offset + part * options_.width + rows.begin * 3 * options_.width;
}

Operand SelfAttention::rows_of(const Head& head, Part part, Range rows) const {
  return input_factor_.operand(offset_of(head, part, rows), rows.rows(), head_width_,
                               3 * options_.width);
}

Matrix SelfAttention::gradient_rows(const Head& head, Part part, Range rows) {
  return {input_gradient_.data() + offset_of(head, part, rows), rows.rows(), head_width_,
          3 * options_.width};
}

std::span<float> SelfAttention::weights_of(const Head& head, Block block) {
  const std::size_t offset =
      keeps_weights() ? (head.index * options_.length + block.begin) * options_.length : 0;
  return weights_.span().subspan(offset, block.rows() * block.seen);
}

void SelfAttention::weigh(const Head& head, Block block) {
  const std::span<float> weights = weights_of(head, block);
  products_.multiply(rows_of(head, kQuery, block.range()),
                     transposed(rows_of(head, kKey, {0, block.seen})),
                     {weights.data(), block.rows(), block.seen, block.seen});
  softmax(weights, block.seen, factor_, sees());
}

void SelfAttention::assign_weights(const Head& head, Block block) {
  const std::span<const float> weights = weights_of(head, block);
  if (!dropout_.is_active()) return block_factor_.assign(weights);
  const std::span<float> factors = kept_factors_.span().first(weights.size());
  const std::size_t first_row =
      (options_.first_head + head.index % options_.heads) * options_.length;
  for (std::size_t row = block.begin; row < block.end; ++row) {
    dropout_.fill(head.sequence, first_row + row,
                  factors.subspan((row - block.begin) * block.seen, block.seen));
  }
  const std::span<float> left = dropped_.span().first(weights.size());
  multiply_elements(weights, factors, left);
  block_factor_.assign(left);
}

std::span<const float> SelfAttention::with_past(std::span<const float> input, Range now) {
  if (!options_.chunk) return input;
  const std::span<float> all = past_.span().first(now.end * 3 * options_.width);
  std::ranges::copy(input, all.last(input.size()).begin());
  return all;
}

std::span<const float> SelfAttention::forward(std::span<const float> input, const Pass& pass) {
  check(options_.mask == Mask::kCausal || !lengths_.empty(),
        "attention within lengths has been given them");
  const std::size_t rows = input.size() / (options_.sequences * 3 * options_.width);
  const Range now{pass.past, pass.past + rows};
  check(options_.chunk ? now.end <= options_.length && rows <= *options_.chunk
                       : now.begin == 0 && rows == options_.length,
        "a pass of attention computes the positions that it was made for");
  dropout_.begin(pass);
  input_factor_.assign(with_past(input, now));
  for_heads([&](Head head) {
    head.length = std::min(head.length, now.end);
    for (std::size_t begin = now.begin; begin < head.length; begin += kBlockRows) {
      const Block block = block_from(head, begin);
      weigh(head, block);
      assign_weights(head, block);
      float* const out = output_.data() + head.output_offset + (begin - now.begin) * options_.width;
      products_.multiply(block_factor_.operand(block.rows(), block.seen),
                         rows_of(head, kValue, {0, block.seen}),
                         {out, block.rows(), head_width_, options_.width});
    }
  });
  clear_padding(output_.span());
  return output_.span().first(input.size() / 3);
}

std::span<const float> SelfAttention::backward(std::span<const float> output_gradient) {
  gradient_factor_.assign(output_gradient);
  for_heads([&](const Head& head) {
    // The last block sees all keys and values, so it overwrites their gradients; other blocks add.
    for (std::size_t end = head.length; end > 0;) {
      const std::size_t begin = (end - 1) / kBlockRows * kBlockRows;
      backward(head, block_from(head, begin));
      end = begin;
    }
  });
  clear_padding(input_gradient_.span());
  return input_gradient_.span();
}

void SelfAttention::backward(const Head& head, Block block) {
  const Range seen{0, block.seen};
  const Into into = block.end == head.length ? Into::kOverwrite : Into::kAdd;
  const Operand dy = gradient_factor_.operand(head.output_offset + block.begin * options_.width,
                                              block.rows(), head_width_, options_.width);
  if (!keeps_weights()) weigh(head, block);
  const std::span<const float> weights = weights_of(head, block);
  assign_weights(head, block);
  products_.multiply(transposed(block_factor_.operand(block.rows(), block.seen)), dy,
                     gradient_rows(head, kValue, seen), into);
  const std::span<float> gradient = score_gradient_.span().first(weights.size());
  products_.multiply(dy, transposed(rows_of(head, kValue, seen)),
                     {gradient.data(), block.rows(), block.seen, block.seen});
  if (dropout_.is_active()) {
    multiply_elements(gradient, kept_factors_.span().first(gradient.size()), gradient);
  }
  softmax_backward(weights, gradient, block.seen, factor_, sees());
  block_factor_.assign(gradient);
  const Operand ds = block_factor_.operand(block.rows(), block.seen);
  products_.multiply(ds, rows_of(head, kKey, seen), gradient_rows(head, kQuery, block.range()));
  products_.multiply(transposed(ds), rows_of(head, kQuery, block.range()),
                     gradient_rows(head, kKey, seen), into);
}

RotaryPositions::RotaryPositions(const SelfAttention::Options& options)
    : options_(options),
      cosines_({options.length, options.width / options.heads / 2}),
      sines_(cosines_.shape()),
      opposite_sines_(cosines_.shape()),
      output_({options.rows(), 3 * options.width}),
      input_gradient_({options.chunk ? 0 : options.rows(), 3 * options.width}) {
  check(options.width % (2 * options.heads) == 0, "rotary positions need heads of an even width");
  const std::size_t pairs = cosines_.shape()[1];
  for (std::size_t i = 0; i < cosines_.size(); ++i) {
    const auto position = static_cast<double>(i / pairs);
    const double share = static_cast<double>(i % pairs) / static_cast<double>(pairs);
    const double angle = position / std::pow(kBase, share);
    cosines_.span()[i] = static_cast<float>(std::cos(angle));
    sines_.span()[i] = static_cast<float>(std::sin(angle));
    opposite_sines_.span()[i] = -sines_.span()[i];
  }
}

std::span<const float> RotaryPositions::forward(std::span<const float> input, const Pass& pass) {
  const std::span<float> output = output_.span().first(input.size());
  rotate(input, pass.past, sines_, output);
  return output;
}

std::span<const float> RotaryPositions::backward(std::span<const float> output_gradient) {
  rotate(output_gradient, 0, opposite_sines_, input_gradient_.span());
  return input_gradient_.span();
}

void RotaryPositions::rotate(std::span<const float> from, std::size_t past, const Tensor& sines,
                             std::span<float> to) const {
  const std::size_t width = options_.width;
  const std::size_t pairs = cosines_.shape()[1];
  const std::size_t rows = from.size() / (3 * width);
  const std::size_t length = rows / options_.sequences;  // positions per sequence in this pass
  for (std::size_t row = 0; row < rows; ++row) {
    const std::size_t angles = (past + row % length) * pairs;
    const auto x = from.subspan(row * 3 * width, 3 * width);
    const auto y = to.subspan(row * 3 * width, 3 * width);
    rotate_pairs(x.first(2 * width), cosines_.span().subspan(angles, pairs),
                 sines.span().subspan(angles, pairs), y.first(2 * width));
    std::ranges::copy(x.last(width), y.last(width).begin());
  }
}

}  // namespace kolo::trainer
