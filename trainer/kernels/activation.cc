#include "trainer/kernels/kernels.h"

#include <algorithm>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trainer/kernels/activation.cc"
#include <hwy/foreach_target.h>  // must precede highway.h

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include "trainer/kernels/for_each-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kolo::trainer {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// The result of a function of `v`, or NaN where `v` is NaN, which the maximum of x86 and Highway's
/// exp and tanh would hide.
template <class V>
HWY_INLINE V keep_nan(V v, V result) {
  return hn::IfThenElse(hn::IsNaN(v), v, result);
}

template <class D, class V>
HWY_INLINE V HyperbolicTangent(D d, V v) {
  return keep_nan(v, hn::Tanh(d, v));
}

/// The logistic function 1 / (1 + exp(-v)).
template <class D, class V>
HWY_INLINE V Logistic(D d, V v) {
  const auto one = hn::Set(d, 1.0f);
  // The result for v below -80 is negligible; clamping keeps exp from overflowing.
  const auto exponent = hn::Neg(hn::Max(v, hn::Set(d, -80.0f)));
  return keep_nan(v, hn::Div(one, hn::Add(one, hn::Exp(d, exponent))));
}

void Relu(const float* x, std::size_t count, float* y, float* slope) {
  for_each(count, [=](auto d, std::size_t i) HWY_ATTR {
    const auto v = hn::LoadU(d, x + i);
    const auto zero = hn::Zero(d);
    hn::StoreU(keep_nan(v, hn::Max(v, zero)), d, y + i);
    hn::StoreU(hn::IfThenElseZero(hn::Gt(v, zero), hn::Set(d, 1.0f)), d, slope + i);
  });
}

// With u = sqrt(2/pi) (x + 0.044715 x^3) and s = 1 / (1 + exp(-2u)):
//   gelu(x) = x (1 + tanh u) / 2 = x s,   gelu'(x) = s + x s (1 - s) 2 du/dx.
void Gelu(const float* x, std::size_t count, float* y, float* slope) {
  constexpr float kTwiceRoot = 1.5957691216f;  // 2 sqrt(2/pi)
  constexpr float kCubic = 0.044715f;
  for_each(count, [=](auto d, std::size_t i) HWY_ATTR {
    const auto v = hn::LoadU(d, x + i);
    const auto one = hn::Set(d, 1.0f);
    const auto square = hn::Mul(v, v);
    const auto factor = hn::Set(d, kTwiceRoot);
    const auto twice_u = hn::Mul(hn::Mul(factor, v), hn::MulAdd(hn::Set(d, kCubic), square, one));
    const auto twice_du = hn::Mul(factor, hn::MulAdd(hn::Set(d, 3.0f * kCubic), square, one));
    const auto s = Logistic(d, twice_u);
    const auto result = hn::Mul(v, s);
    hn::StoreU(result, d, y + i);
    hn::StoreU(hn::MulAdd(hn::Mul(result, hn::Sub(one, s)), twice_du, s), d, slope + i);
  });
}

void Tanh(const float* x, std::size_t count, float* y, float* slope) {
  for_each(count, [=](auto d, std::size_t i) HWY_ATTR {
    const auto result = HyperbolicTangent(d, hn::LoadU(d, x + i));
    hn::StoreU(result, d, y + i);
    hn::StoreU(hn::NegMulAdd(result, result, hn::Set(d, 1.0f)), d, slope + i);
  });
}

// Computes values = exp(factor · (values - top)) and returns their sum. Before: factor > 0, and
// `top` is the largest value.
float Exponentials(float* values, std::size_t count, float factor, float top) {
  return sum_over(count, [=](auto d, std::size_t i) HWY_ATTR {
    const auto centred = hn::Sub(hn::LoadU(d, values + i), hn::Set(d, top));
    const auto exponent = hn::Mul(centred, hn::Set(d, factor));
    const auto result = keep_nan(exponent, hn::Exp(d, exponent));
    hn::StoreU(result, d, values + i);
    return result;
  });
}

void ScaleBy(float* values, std::size_t count, float factor) {
  for_each(count, [=](auto d, std::size_t i) HWY_ATTR {
    hn::StoreU(hn::Mul(hn::LoadU(d, values + i), hn::Set(d, factor)), d, values + i);
  });
}

// Row i sees the first `first` + i · `step` of `length` positions.
void AttentionSoftmax(float* scores, std::size_t rows, std::size_t length, std::size_t first,
                      std::size_t step, float factor) {
  for (std::size_t i = 0; i < rows; ++i) {
    float* row = scores + i * length;
    const std::size_t seen = first + i * step;
    const float sum = Exponentials(row, seen, factor, largest(row, seen));
    ScaleBy(row, seen, 1.0f / sum);
    std::fill(row + seen, row + length, 0.0f);
  }
}

void AttentionSoftmaxBackward(const float* weights, float* gradient, std::size_t rows,
                              std::size_t length, std::size_t first, std::size_t step,
                              float factor) {
  for (std::size_t i = 0; i < rows; ++i) {
    const float* w = weights + i * length;
    float* g = gradient + i * length;
    const std::size_t seen = first + i * step;
    const float dot = sum_over(seen, [=](auto d, std::size_t j) HWY_ATTR {
      return hn::Mul(hn::LoadU(d, w + j), hn::LoadU(d, g + j));
    });
    for_each(seen, [=](auto d, std::size_t j) HWY_ATTR {
      const auto centred = hn::Sub(hn::LoadU(d, g + j), hn::Set(d, dot));
      const auto scaled = hn::Mul(hn::LoadU(d, w + j), hn::Set(d, factor));
      hn::StoreU(hn::Mul(scaled, centred), d, g + j);
    });
    std::fill(g + seen, g + length, 0.0f);
  }
}

float SoftmaxCrossEntropy(float* logits, std::size_t count, std::size_t target, float weight) {
  const float top = largest(logits, count);
  const float shifted = logits[target] - top;
  const float sum = Exponentials(logits, count, 1.0f, top);
  ScaleBy(logits, count, weight / sum);
  logits[target] -= weight;
  return std::log(sum) - shifted;
}

void LstmRow(float* gates, const float* previous, std::size_t width, float* cells, float* squashed,
             float* states) {
  for_each(width, [=](auto d, std::size_t j) HWY_ATTR {
    float* at = gates + j;
    const auto i = Logistic(d, hn::LoadU(d, at));
    const auto f = Logistic(d, hn::LoadU(d, at + width));
    const auto g = HyperbolicTangent(d, hn::LoadU(d, at + 2 * width));
    const auto o = Logistic(d, hn::LoadU(d, at + 3 * width));
    const auto cell = hn::MulAdd(f, hn::LoadU(d, previous + j), hn::Mul(i, g));
    const auto tanh = HyperbolicTangent(d, cell);
    hn::StoreU(i, d, at);
    hn::StoreU(f, d, at + width);
    hn::StoreU(g, d, at + 2 * width);
    hn::StoreU(o, d, at + 3 * width);
    hn::StoreU(cell, d, cells + j);
    hn::StoreU(tanh, d, squashed + j);
    hn::StoreU(hn::Mul(o, tanh), d, states + j);
  });
}

// The derivative of σ is σ (1 - σ); the derivative of tanh is 1 - tanh².
void LstmBackwardRow(const float* dy, const float* state_gradient, const float* previous,
                     const float* squashed, std::size_t width, float* cell_gradient, float* gates) {
  for_each(width, [=](auto d, std::size_t j) HWY_ATTR {
    float* at = gates + j;
    const auto i = hn::LoadU(d, at);
    const auto f = hn::LoadU(d, at + width);
    const auto g = hn::LoadU(d, at + 2 * width);
    const auto o = hn::LoadU(d, at + 3 * width);
    const auto tanh = hn::LoadU(d, squashed + j);
    const auto one = hn::Set(d, 1.0f);
    const auto dstate = hn::Add(hn::LoadU(d, dy + j), hn::LoadU(d, state_gradient + j));
    const auto dtanh = hn::Mul(dstate, o);
    const auto dcell =
        hn::MulAdd(dtanh, hn::NegMulAdd(tanh, tanh, one), hn::LoadU(d, cell_gradient + j));
    const auto slope = [=](auto v) HWY_ATTR { return hn::Mul(v, hn::Sub(one, v)); };
    hn::StoreU(hn::Mul(hn::Mul(dcell, g), slope(i)), d, at);
    hn::StoreU(hn::Mul(hn::Mul(dcell, hn::LoadU(d, previous + j)), slope(f)), d, at + width);
    hn::StoreU(hn::Mul(hn::Mul(dcell, i), hn::NegMulAdd(g, g, one)), d, at + 2 * width);
    hn::StoreU(hn::Mul(hn::Mul(dstate, tanh), slope(o)), d, at + 3 * width);
    hn::StoreU(hn::Mul(dcell, f), d, cell_gradient + j);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace kolo::trainer
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kolo::trainer {

HWY_EXPORT(Relu);
HWY_EXPORT(Gelu);
HWY_EXPORT(Tanh);

void relu(std::span<const float> x, std::span<float> y, std::span<float> slope) {
  HWY_DYNAMIC_DISPATCH(Relu)(x.data(), x.size(), y.data(), slope.data());
}

void gelu(std::span<const float> x, std::span<float> y, std::span<float> slope) {
  HWY_DYNAMIC_DISPATCH(Gelu)(x.data(), x.size(), y.data(), slope.data());
}

void tanh(std::span<const float> x, std::span<float> y, std::span<float> slope) {
  HWY_DYNAMIC_DISPATCH(Tanh)(x.data(), x.size(), y.data(), slope.data());
}

HWY_EXPORT(AttentionSoftmax);
HWY_EXPORT(AttentionSoftmaxBackward);
HWY_EXPORT(SoftmaxCrossEntropy);

void softmax(std::span<float> scores, std::size_t length, float factor, Sees sees) {
  const std::size_t rows = scores.size() / length;
  const std::size_t step = sees == Sees::kEarlier ? 1 : 0;
  HWY_DYNAMIC_DISPATCH(AttentionSoftmax)
  (scores.data(), rows, length, length - step * (rows - 1), step, factor);
}

void softmax_backward(std::span<const float> weights, std::span<float> gradient, std::size_t length,
                      float factor, Sees sees) {
  const std::size_t rows = weights.size() / length;
  const std::size_t step = sees == Sees::kEarlier ? 1 : 0;
  HWY_DYNAMIC_DISPATCH(AttentionSoftmaxBackward)
  (weights.data(), gradient.data(), rows, length, length - step * (rows - 1), step, factor);
}

float softmax_cross_entropy(std::span<float> logits, std::size_t target, float weight) {
  return HWY_DYNAMIC_DISPATCH(SoftmaxCrossEntropy)(logits.data(), logits.size(), target, weight);
}

HWY_EXPORT(LstmRow);
HWY_EXPORT(LstmBackwardRow);

void lstm_cells(std::span<float> gates, std::span<const float> previous, std::size_t width,
                std::span<float> cells, std::span<float> squashed, std::span<float> states) {
  const auto row_kernel = HWY_DYNAMIC_DISPATCH(LstmRow);
  for (std::size_t at = 0; at < cells.size(); at += width) {
    row_kernel(&gates[4 * at], &previous[at], width, &cells[at], &squashed[at], &states[at]);
  }
}

void lstm_cells_backward(std::span<const float> dy, std::span<const float> state_gradient,
                         std::span<const float> previous, std::span<const float> squashed,
                         std::size_t width, std::span<float> cell_gradient,
                         std::span<float> gates) {
  const auto row_kernel = HWY_DYNAMIC_DISPATCH(LstmBackwardRow);
  for (std::size_t at = 0; at < dy.size(); at += width) {
    row_kernel(&dy[at], &state_gradient[at], &previous[at], &squashed[at], width,
               &cell_gradient[at], &gates[4 * at]);
  }
}

}  // namespace kolo::trainer
#endif
