#include "trainer/kernels/update.h"

#include <cstddef>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trainer/kernels/update.cc"
#include <hwy/foreach_target.h>  // must precede highway.h

#include <hwy/highway.h>

#include "trainer/kernels/for_each-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kolo::trainer {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void SgdUpdate(const SgdStep& step, const float* gradient, std::size_t count, float* velocity,
               float* value) {
  for_each(count, [=](auto d, std::size_t i) HWY_ATTR {
    const auto w = hn::LoadU(d, value + i);
    const auto scaled = hn::Mul(hn::LoadU(d, gradient + i), hn::Set(d, step.gradient_scale));
    const auto g = hn::MulAdd(w, hn::Set(d, step.weight_decay), scaled);
    const auto moving = hn::MulAdd(hn::LoadU(d, velocity + i), hn::Set(d, step.momentum), g);
    hn::StoreU(moving, d, velocity + i);
    const auto change = step.nesterov ? hn::MulAdd(moving, hn::Set(d, step.momentum), g) : moving;
    hn::StoreU(hn::NegMulAdd(change, hn::Set(d, step.lr), w), d, value + i);
  });
}

// Moves the moments, and gives the change of the value to `use(d, i, value, change)`.
template <typename Use>
HWY_INLINE void AdamWStepOver(const AdamWStep& step, const float* gradient, std::size_t count,
                              float* m, float* v, const float* value, const Use& use) {
  for_each(count, [=](auto d, std::size_t i) HWY_ATTR {
    const auto g = hn::Mul(hn::LoadU(d, gradient + i), hn::Set(d, step.gradient_scale));
    const auto old_m = hn::LoadU(d, m + i);
    const auto old_v = hn::LoadU(d, v + i);
    const auto new_m = hn::MulAdd(hn::Set(d, 1.0f - step.beta1), hn::Sub(g, old_m), old_m);
    const auto new_v =
        hn::MulAdd(hn::Set(d, 1.0f - step.beta2), hn::Sub(hn::Mul(g, g), old_v), old_v);
    hn::StoreU(new_m, d, m + i);
    hn::StoreU(new_v, d, v + i);
    const auto root = hn::Sqrt(hn::Mul(new_v, hn::Set(d, step.bias_correction2)));
    const auto direction = hn::Div(hn::Mul(new_m, hn::Set(d, step.bias_correction1)),
                                   hn::Add(root, hn::Set(d, step.epsilon)));
    const auto w = hn::LoadU(d, value + i);
    use(d, i, w, hn::MulAdd(w, hn::Set(d, step.weight_decay), direction));
  });
}

void AdamWUpdate(const AdamWStep& step, const float* gradient, std::size_t count, float* m,
                 float* v, float* value) {
  AdamWStepOver(step, gradient, count, m, v, value,
                [=](auto d, std::size_t i, auto w, auto change) HWY_ATTR {
                  hn::StoreU(hn::NegMulAdd(change, hn::Set(d, step.lr), w), d, value + i);
                });
}

void AdamWDirection(const AdamWStep& step, float* gradient, std::size_t count, float* m, float* v,
                    const float* value) {
  AdamWStepOver(step, gradient, count, m, v, value,
                [=](auto d, std::size_t i, auto, auto change)
                    HWY_ATTR { hn::StoreU(change, d, gradient + i); });
}

void SecondMomentUpdate(const SecondMomentStep& step, const float* gradient, std::size_t count,
                        const float* v, float* new_v) {
  for_each(count, [=](auto d, std::size_t i) HWY_ATTR {
    const auto g = hn::LoadU(d, gradient + i);
    const auto old_v = hn::LoadU(d, v + i);
    const auto square = hn::Mul(hn::Mul(g, g), hn::Set(d, step.square_scale));
    hn::StoreU(hn::MulAdd(hn::Set(d, 1.0f - step.beta2), hn::Sub(square, old_v), old_v), d,
               new_v + i);
  });
}

void AdamDirection(const AdamDirectionStep& step, const float* v, std::size_t count,
                   float* gradient) {
  for_each(count, [=](auto d, std::size_t i) HWY_ATTR {
    const auto root = hn::Sqrt(hn::Mul(hn::LoadU(d, v + i), hn::Set(d, step.moment_scale)));
    const auto direction =
        hn::Div(hn::LoadU(d, gradient + i), hn::Add(root, hn::Set(d, step.epsilon)));
    hn::StoreU(direction, d, gradient + i);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace kolo::trainer
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kolo::trainer {

HWY_EXPORT(SgdUpdate);
HWY_EXPORT(AdamWUpdate);
HWY_EXPORT(AdamWDirection);
HWY_EXPORT(SecondMomentUpdate);
HWY_EXPORT(AdamDirection);

void sgd_update(const SgdStep& step, std::span<const float> gradient, std::span<float> velocity,
                std::span<float> value) {
  HWY_DYNAMIC_DISPATCH(SgdUpdate)
  (step, gradient.data(), value.size(), velocity.data(), value.data());
}

void adamw_update(const AdamWStep& step, std::span<const float> gradient, std::span<float> m,
                  std::span<float> v, std::span<float> value) {
  HWY_DYNAMIC_DISPATCH(AdamWUpdate)
  (step, gradient.data(), value.size(), m.data(), v.data(), value.data());
}

void adamw_direction(const AdamWStep& step, std::span<float> gradient, std::span<float> m,
                     std::span<float> v, std::span<const float> value) {
  HWY_DYNAMIC_DISPATCH(AdamWDirection)
  (step, gradient.data(), value.size(), m.data(), v.data(), value.data());
}

void second_moment_update(const SecondMomentStep& step, std::span<const float> gradient,
                          std::span<const float> v, std::span<float> new_v) {
  HWY_DYNAMIC_DISPATCH(SecondMomentUpdate)
  (step, gradient.data(), v.size(), v.data(), new_v.data());
}

void adam_direction(const AdamDirectionStep& step, std::span<const float> v,
                    std::span<float> gradient) {
  HWY_DYNAMIC_DISPATCH(AdamDirection)(step, v.data(), gradient.size(), gradient.data());
}

}  // namespace kolo::trainer
#endif
