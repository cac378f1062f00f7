#include "trainer/kernels/softmax.h"

#include <algorithm>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trainer/kernels/softmax.cc"
#include <hwy/foreach_target.h>  // must precede highway.h

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include "trainer/kernels/for_each-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kolo::trainer {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// values = exp(factor · (values - top)); returns their sum. Before: factor > 0, top the largest.
float Exponentials(float* values, std::size_t count, float factor, float top) {
  return sum_over(count, [=](auto d, std::size_t i) HWY_ATTR {
    const auto centred = hn::Sub(hn::LoadU(d, values + i), hn::Set(d, top));
    const auto result = hn::Exp(d, hn::Mul(centred, hn::Set(d, factor)));
    hn::StoreU(result, d, values + i);
    return result;
  });
}

void ScaleBy(float* values, std::size_t count, float factor) {
  for_each(count, [=](auto d, std::size_t i) HWY_ATTR {
    hn::StoreU(hn::Mul(hn::LoadU(d, values + i), hn::Set(d, factor)), d, values + i);
  });
}

// Row i sees the first `first` + i * `step` of `length` positions.
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

}  // namespace HWY_NAMESPACE
}  // namespace kolo::trainer
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kolo::trainer {

HWY_EXPORT(AttentionSoftmax);
HWY_EXPORT(AttentionSoftmaxBackward);
HWY_EXPORT(SoftmaxCrossEntropy);

void causal_softmax(std::span<float> scores, std::size_t length, float factor) {
  const std::size_t rows = scores.size() / length;
  HWY_DYNAMIC_DISPATCH(AttentionSoftmax)
  (scores.data(), rows, length, length - rows + 1, 1, factor);
}

void causal_softmax_backward(std::span<const float> weights, std::span<float> gradient,
                             std::size_t length, float factor) {
  const std::size_t rows = weights.size() / length;
  HWY_DYNAMIC_DISPATCH(AttentionSoftmaxBackward)
  (weights.data(), gradient.data(), rows, length, length - rows + 1, 1, factor);
}

void softmax(std::span<float> scores, std::size_t length, float factor) {
  HWY_DYNAMIC_DISPATCH(AttentionSoftmax)
  (scores.data(), scores.size() / length, length, length, 0, factor);
}

void softmax_backward(std::span<const float> weights, std::span<float> gradient, std::size_t length,
                      float factor) {
  HWY_DYNAMIC_DISPATCH(AttentionSoftmaxBackward)
  (weights.data(), gradient.data(), weights.size() / length, length, length, 0, factor);
}

float softmax_cross_entropy(std::span<float> logits, std::size_t target, float weight) {
  return HWY_DYNAMIC_DISPATCH(SoftmaxCrossEntropy)(logits.data(), logits.size(), target, weight);
}

}  // namespace kolo::trainer
#endif
