#include "trainer/cuda/layers/attention.h"

#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "comm/base/check.h"
#include "comm/base/error.h"
#include "comm/base/log.h"
#include "trainer/cuda/kernels/softmax.h"

namespace kolo::trainer::cuda {
namespace {

enum Part : std::size_t { kQuery, kKey, kValue };

/// Before this version, cuDNN needs lengths that are multiples of 128.
constexpr std::size_t kOldestFusedVersion = 91600;

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

float factor_of(const HeadShape& shape) {
  return 1.0f / std::sqrt(static_cast<float>(shape.head_width));
}

/// Adds tensors of the joined layout to a graph, as [sequences, heads, length, head_width].
class JoinedTensors {
 public:
  JoinedTensors(DnnGraph& graph, DType dtype, const HeadShape& shape)
      : graph_(graph),
        dtype_(dtype),
        sequences_(narrow<std::int64_t>(shape.sequences)),
        heads_(narrow<std::int64_t>(shape.heads)),
        length_(narrow<std::int64_t>(shape.length)),
        width_(narrow<std::int64_t>(shape.head_width)) {}

  /// A tensor with `parts` parts, or one part of it.
  DnnGraph::Tensor add(std::int64_t parts) {
    const std::int64_t row = parts * heads_ * width_;
    return graph_.in_memory(dtype_, {sequences_, heads_, length_, width_},
                            {length_ * row, width_, row, 1});
  }
  /// The same with the last two dimensions exchanged.
  DnnGraph::Tensor add_transposed(std::int64_t parts) {
    const std::int64_t row = parts * heads_ * width_;
    return graph_.in_memory(dtype_, {sequences_, heads_, width_, length_},
                            {length_ * row, width_, 1, row});
  }
  /// A float32 number per row and head.
  DnnGraph::Tensor add_row_numbers() {
    return graph_.in_memory(DType::kFloat32, {sequences_, heads_, length_, 1},
                            {heads_ * length_, length_, 1, 1});
  }
  DnnGraph::Tensor add_inner_scores() {
    return graph_.inner(dtype_, {sequences_, heads_, length_, length_});
  }

 private:
  DnnGraph& graph_;
  DType dtype_;
  std::int64_t sequences_, heads_, length_, width_;
};

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
constexpr float kKept = 1.0f;  // the share that dropout would keep

// The order of tensors in memory is that of the addresses in `FusedAttention::forward`.
DnnGraph forward_graph(DType dtype, const HeadShape& shape) {
  DnnGraph g;
  JoinedTensors tensors(g, dtype, shape);
  const auto q = tensors.add(3), k_transposed = tensors.add_transposed(3), v = tensors.add(3);
  const auto factor = g.number(), minus_infinity = g.number();
  const auto y = tensors.add(1), statistics = tensors.add_row_numbers();

  const auto scores = g.apply(CUDNN_POINTWISE_MUL, g.multiply(q, k_transposed), factor);
  const auto masked = g.causal(scores, minus_infinity);
  const auto most = g.reduce(CUDNN_REDUCE_TENSOR_MAX, masked);
  const auto powers = g.apply(CUDNN_POINTWISE_EXP, g.apply(CUDNN_POINTWISE_SUB, masked, most));
  const auto sum = g.reduce(CUDNN_REDUCE_TENSOR_ADD, powers);
  g.apply(CUDNN_POINTWISE_ADD, most, g.apply(CUDNN_POINTWISE_LOG, sum), statistics);
  const auto weights = g.apply(CUDNN_POINTWISE_DIV, powers, sum, tensors.add_inner_scores());
  g.multiply(weights, v, y);
  return g;
}

// The order of tensors in memory is that of the addresses in `FusedAttention::backward`.
//
//   weights = exp(scores - statistics)           dv = weightsᵀ · dy
//   ds = weights · (dy · vᵀ - Σ dy · y) · factor   dk = dsᵀ · q       dq = ds · k
DnnGraph backward_graph(DType dtype, const HeadShape& shape) {
  DnnGraph g;
  JoinedTensors tensors(g, dtype, shape);
  const auto q = tensors.add(3), k_transposed = tensors.add_transposed(3),
             v_transposed = tensors.add_transposed(3);
  const auto y = tensors.add(1), dy = tensors.add(1), statistics = tensors.add_row_numbers();
  const auto factor = g.number(), minus_infinity = g.number(), one = g.number();
  const auto dq = tensors.add(3), dk = tensors.add(3), dv = tensors.add(3);
  const auto row_sums = tensors.add_row_numbers();

  const auto products = g.reduce(CUDNN_REDUCE_TENSOR_ADD, g.apply(CUDNN_POINTWISE_MUL, dy, y));
  g.apply(CUDNN_POINTWISE_MUL, products, one, row_sums);
  const auto scores = g.apply(CUDNN_POINTWISE_MUL, g.multiply(q, k_transposed), factor);
  const auto logarithms = g.apply(CUDNN_POINTWISE_SUB, scores, statistics);
  const auto weights = g.apply(CUDNN_POINTWISE_EXP, g.causal(logarithms, minus_infinity));
  g.multiply(g.transpose(weights, dtype), dy, dv);
  const auto slopes = g.apply(CUDNN_POINTWISE_SUB, g.multiply(dy, v_transposed), row_sums);
  const auto ds =
      g.apply(CUDNN_POINTWISE_MUL, g.apply(CUDNN_POINTWISE_MUL, slopes, weights), factor);
  g.multiply(g.transpose(ds, dtype), q, dk);
  g.multiply(ds, g.transpose(k_transposed), dq);
  return g;
}

/// Returns the graphs that `mode` asks for; none for kProducts. Errors: those of AttentionScratch.
std::optional<FusedAttention> find_fused(Context& context, const HeadShape& packed,
                                         AttentionMode mode) {
  const bool is_fast = is_16bit_float(context.dtype()) && cudnnGetVersion() >= kOldestFusedVersion;
  if (mode == AttentionMode::kProducts || (mode == AttentionMode::kAuto && !is_fast)) return {};
  try {
    std::optional<FusedAttention> fused(std::in_place, context.dtype(), packed);
    if (fused->compile(context.dnn)) return fused;
    throw KoloError({.code = ErrorCode::kConfig,
                     .what = "cuDNN has no deterministic fused attention for this shape, dtype and "
                             "device"});
  } catch (const KoloError& error) {
    if (mode == AttentionMode::kFused) throw;
    log::warn(std::string("attention by matrix products: ") + error.what());
    return {};
  }
}

}  // namespace

FusedAttention::FusedAttention(DType dtype, const HeadShape& packed)
    : part_bytes_(packed.heads * packed.head_width * size_of(dtype)),
      factor_(factor_of(packed)),
      forward_(cuda::forward_graph(dtype, packed)),
      backward_(cuda::backward_graph(dtype, packed)) {}

void FusedAttention::forward(const void* packed, void* y, void* statistics) {
  const auto* const q = static_cast<const std::byte*>(packed);
  forward_.run({q, q + part_bytes_, q + 2 * part_bytes_, &factor_, &kMinusInfinity, y, statistics});
}

void FusedAttention::backward(const Backward& pass) {
  const auto* const q = static_cast<const std::byte*>(pass.packed);
  auto* const dq = static_cast<std::byte*>(pass.packed_gradient);
  backward_.run({q, q + part_bytes_, q + 2 * part_bytes_, pass.y, pass.dy, pass.statistics,
                 &factor_, &kMinusInfinity, &kKept, dq, dq + part_bytes_, dq + 2 * part_bytes_,
                 pass.row_sums});
}

AttentionScratch::AttentionScratch(Context& context, const SelfAttention::Options& options,
                                   AttentionMode mode)
    : fused(find_fused(context, head_shape(options, 3), mode)),
      packed(context.activations(head_shape(options, 3).count())) {
  if (fused) {
    row_sums = context.floats(options.sequences * options.heads * options.length);
    return;
  }
  heads = context.activations(head_shape(options, 1).count());
  split_gradients = context.activations(head_shape(options, 3).count());
  score_gradients = context.activations(score_count(options));
}

Attention::Attention(Context& context, AttentionScratch& scratch,
                     const SelfAttention::Options& options)
    : context_(context),
      scratch_(scratch),
      packed_(head_shape(options, 3)),
      single_(head_shape(options, 1)),
      matrices_(options.sequences * options.heads),
      factor_(factor_of(packed_)),
      inputs_(context.activations(packed_.count())) {
  if (scratch.fused) {
    statistics_ = context.floats(matrices_ * options.length);
    return;
  }
  const std::size_t length = options.length, width = packed_.head_width;
  weights_ = context.activations(score_count(options));
  scores_ = plan(length, length, width, Layout::kPlain, Layout::kTransposed);
  mix_ = plan(length, width, length, Layout::kPlain, Layout::kPlain);
  unmix_ = plan(length, width, length, Layout::kTransposed, Layout::kPlain);
}

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

void* Attention::inputs() const { return scratch_.fused ? inputs_.data() : scratch_.packed.data(); }

void Attention::forward(void* y) {
  if (!scratch_.fused) return forward_by_products(y);
  scratch_.fused->forward(inputs_.data(), y, statistics_.data());
}

const void* Attention::backward(const void* y, const void* dy) {
  if (scratch_.fused) {
    scratch_.fused->backward({.packed = inputs_.data(),
                              .y = y,
                              .dy = dy,
                              .statistics = statistics_.data(),
                              .packed_gradient = scratch_.packed.data(),
                              .row_sums = scratch_.row_sums.data()});
  } else {
    backward_by_products(dy);
  }
  return scratch_.packed.data();
}

void Attention::forward_by_products(void* y) {
  const NativeStream stream = context_.stream();
  split_heads(stream, context_.dtype(), packed_, scratch_.packed.data(), inputs_.data());
  // The factor is applied before the result is rounded, so that float16 does not overflow.
  multiply(scores_, part(inputs_, kQuery), part(inputs_, kKey), weights_.data(), factor_);
  causal_softmax(stream, {.dtype = context_.dtype(),
                          .matrices = matrices_,
                          .length = single_.length,
                          .scores = weights_.data()});
  multiply(mix_, weights_.data(), part(inputs_, kValue), scratch_.heads.data());
  join_heads(stream, context_.dtype(), single_, scratch_.heads.data(), y);
}

void Attention::backward_by_products(const void* dy) {
  const NativeStream stream = context_.stream();
  std::byte* const heads = scratch_.heads.data();
  std::byte* const scores = scratch_.score_gradients.data();
  const DeviceMemory& gradients = scratch_.split_gradients;
  split_heads(stream, context_.dtype(), single_, dy, heads);
  multiply(unmix_, weights_.data(), heads, part(gradients, kValue));
  multiply(scores_, heads, part(inputs_, kValue), scores);
  causal_softmax_backward(stream, {.dtype = context_.dtype(),
                                   .matrices = matrices_,
                                   .length = single_.length,
                                   .weights = weights_.data(),
                                   .gradient = scores});
  multiply(mix_, scores, part(inputs_, kKey), part(gradients, kQuery), factor_);
  multiply(unmix_, scores, part(inputs_, kQuery), part(gradients, kKey), factor_);
  join_heads(stream, context_.dtype(), packed_, gradients.data(), scratch_.packed.data());
}

}  // namespace kolo::trainer::cuda
