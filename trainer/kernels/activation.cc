#include "trainer/kernels/activation.h"

#include <cstddef>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trainer/kernels/activation.cc"
#include <hwy/foreach_target.h>  // must precede highway.h

#include <hwy/highway.h>

#include "trainer/kernels/for_each-inl.h"
#include "trainer/kernels/logistic-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kolo::trainer {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void Relu(const float* x, std::size_t count, float* y, float* slope) {
  for_each(count, [=](auto d, std::size_t i) HWY_ATTR {
    const auto v = hn::LoadU(d, x + i);
    const auto zero = hn::Zero(d);
    hn::StoreU(hn::Max(v, zero), d, y + i);
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
    const auto result = hn::Tanh(d, hn::LoadU(d, x + i));
    hn::StoreU(result, d, y + i);
    hn::StoreU(hn::NegMulAdd(result, result, hn::Set(d, 1.0f)), d, slope + i);
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

}  // namespace kolo::trainer
#endif
