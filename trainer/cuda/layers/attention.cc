#include "trainer/cuda/layers/attention.h"

#include <cmath>

#include "comm/base/check.h"
#include "trainer/cuda/kernels/causal_softmax.h"

namespace kolo::trainer::cuda {
namespace {

enum Part : std::size_t { kQuery, kKey, kValue };

HeadShape head_shape(const SelfAttention::Options& o, std::size_t parts) {
  check(o.width % o.heads == 0, "the number of heads divides the width");
  return {.parts = parts,
          .sequences = o.sequences,
          .length = o.length,
          .heads = o.heads,
          .head_width = o.width / o.heads};
}

std::size_t score_count(const SelfAttention::Options& o) {
  return o.sequences * o.heads * o.length * o.length;
}

}  // namespace

AttentionScratch::AttentionScratch(Context& context, const SelfAttention::Options& options)
    : heads(context.activations(head_shape(options, 1).count())),
      split_gradients(context.activations(head_shape(options, 3).count())),
      score_gradients(context.activations(score_count(options))) {}

Attention::Attention(Context& context, AttentionScratch& scratch,
                     const SelfAttention::Options& options)
    : context_(context),
      scratch_(scratch),
      packed_(head_shape(options, 3)),
      single_(head_shape(options, 1)),
      matrices_(options.sequences * options.heads),
      factor_(1.0f / std::sqrt(static_cast<float>(packed_.head_width))),
      split_(context.activations(packed_.count())),
      weights_(context.activations(score_count(options))),
      scores_(plan(options.length, options.length, packed_.head_width, Layout::kPlain,
                   Layout::kTransposed)),
      mix_(
          plan(options.length, packed_.head_width, options.length, Layout::kPlain, Layout::kPlain)),
      unmix_(plan(options.length, packed_.head_width, options.length, Layout::kTransposed,
                  Layout::kPlain)) {}

const Blas::Plan* Attention::plan(std::size_t rows, std::size_t columns, std::size_t depth,
                                  Layout a, Layout b) {
  return &context_.blas.get({.rows = rows,
                             .columns = columns,
                             .depth = depth,
                             .a = a,
                             .b = b,
                             .operand = context_.dtype(),
                             .result = context_.dtype(),
                             .batch = matrices_,
                             .epilogue = Epilogue::kNone});
}

void Attention::multiply(const Blas::Plan* plan, const void* a, const void* b, void* d,
                         float alpha) {
  context_.blas.run(*plan, {.a = a, .b = b, .d = d, .alpha = alpha});
}

std::byte* Attention::part(const DeviceMemory& memory, std::size_t index) const {
  return memory.data() + index * single_.count() * size_of(context_.dtype());
}

void Attention::forward(const void* packed, void* y) {
  const NativeStream stream = context_.stream();
  split_heads(stream, context_.dtype(), packed_, packed, split_.data());
  // The factor is applied before the result is rounded, so float16 does not overflow.
  multiply(scores_, part(split_, kQuery), part(split_, kKey), weights_.data(), factor_);
  causal_softmax(stream, {.dtype = context_.dtype(),
                          .matrices = matrices_,
                          .length = single_.length,
                          .scores = weights_.data()});
  multiply(mix_, weights_.data(), part(split_, kValue), scratch_.heads.data());
  join_heads(stream, context_.dtype(), single_, scratch_.heads.data(), y);
}

void Attention::backward(const void* dy, void* packed_gradient) {
  const NativeStream stream = context_.stream();
  std::byte* const heads = scratch_.heads.data();
  std::byte* const scores = scratch_.score_gradients.data();
  const DeviceMemory& gradients = scratch_.split_gradients;
  split_heads(stream, context_.dtype(), single_, dy, heads);
  multiply(unmix_, weights_.data(), heads, part(gradients, kValue));
  multiply(scores_, heads, part(split_, kValue), scores);
  causal_softmax_backward(stream, {.dtype = context_.dtype(),
                                   .matrices = matrices_,
                                   .length = single_.length,
                                   .weights = weights_.data(),
                                   .gradient = scores});
  multiply(mix_, scores, part(split_, kKey), part(gradients, kQuery), factor_);
  multiply(unmix_, scores, part(split_, kQuery), part(gradients, kKey), factor_);
  join_heads(stream, context_.dtype(), packed_, gradients.data(), packed_gradient);
}

}  // namespace kolo::trainer::cuda
