#include "trainer/kernels/kernels.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trainer/kernels/vector.cc"
#include <hwy/foreach_target.h>  // must precede highway.h

#include <hwy/highway.h>

#include "trainer/kernels/for_each-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kolo::trainer {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void Add(const float* a, const float* b, std::size_t count, float* out) {
  for_each(count, [=](auto d, std::size_t i) HWY_ATTR {
    hn::StoreU(hn::Add(hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, out + i);
  });
}

void MultiplyElements(const float* a, const float* b, std::size_t count, float* out) {
  for_each(count, [=](auto d, std::size_t i) HWY_ATTR {
    hn::StoreU(hn::Mul(hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, out + i);
  });
}

void AddScaled(const float* values, std::size_t count, float factor, float* out) {
  for_each(count, [=](auto d, std::size_t i) HWY_ATTR {
    const auto sum =
        hn::MulAdd(hn::LoadU(d, values + i), hn::Set(d, factor), hn::LoadU(d, out + i));
    hn::StoreU(sum, d, out + i);
  });
}

void Scale(float* values, std::size_t count, float factor) {
  for_each(count, [=](auto d, std::size_t i) HWY_ATTR {
    hn::StoreU(hn::Mul(hn::LoadU(d, values + i), hn::Set(d, factor)), d, values + i);
  });
}

// Adds four rows at a time, so that `sums` are read and written once per four rows.
void SumRows(const float* matrix, std::size_t rows, std::size_t width, float* sums) {
  std::size_t row = 0;
  for (; row + 4 <= rows; row += 4) {
    const float* m = matrix + row * width;
    for_each(width, [=](auto d, std::size_t j) HWY_ATTR {
      auto sum = hn::LoadU(d, sums + j);
      sum = hn::Add(sum, hn::LoadU(d, m + j));
      sum = hn::Add(sum, hn::LoadU(d, m + width + j));
      sum = hn::Add(sum, hn::LoadU(d, m + 2 * width + j));
      sum = hn::Add(sum, hn::LoadU(d, m + 3 * width + j));
      hn::StoreU(sum, d, sums + j);
    });
  }
  for (; row < rows; ++row) Add(sums, matrix + row * width, width, sums);
}

double SumOfSquares(const float* values, std::size_t count) {
  constexpr std::size_t kBlock = 1024;
  double sum = 0.0;
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const float* block = values + begin;
    sum += sum_over(std::min(kBlock, count - begin), [=](auto d, std::size_t i) HWY_ATTR {
      const auto v = hn::LoadU(d, block + i);
      return hn::Mul(v, v);
    });
  }
  return sum;
}

// Rounds by adding a bias to the lower half of each float32, which carries into the upper half, as
// in comm/base/half.h.
void RoundToBFloat16(const float* values, std::size_t count, std::uint16_t* out) {
  for_each(count, [=](auto d, std::size_t i) HWY_ATTR {
    const hn::RebindToUnsigned<decltype(d)> bits_tag;
    const hn::RebindToSigned<decltype(d)> signed_tag;
    const hn::Rebind<std::uint16_t, decltype(d)> half_tag;
    const auto value = hn::LoadU(d, values + i);
    const auto bits = hn::BitCast(bits_tag, value);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(bits_tag, 1));
    const auto carried = hn::Add(hn::Add(bits, hn::Set(bits_tag, 0x7fff)), odd);
    const auto is_nan = hn::RebindMask(bits_tag, hn::IsNaN(value));
    const auto rounded =
        hn::IfThenElse(is_nan, hn::Set(bits_tag, 0x7fc0), hn::ShiftRight<16>(carried));
    hn::StoreU(hn::DemoteTo(half_tag, hn::BitCast(signed_tag, rounded)), half_tag, out + i);
  });
}

void Widen(const std::uint16_t* values, std::size_t count, float* out) {
  for_each(count, [=](auto d, std::size_t i) HWY_ATTR {
    const hn::RebindToUnsigned<decltype(d)> bits_tag;
    const hn::Rebind<std::uint16_t, decltype(d)> half_tag;
    const auto bits = hn::PromoteTo(bits_tag, hn::LoadU(half_tag, values + i));
    hn::StoreU(hn::BitCast(d, hn::ShiftLeft<16>(bits)), d, out + i);
  });
}

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

// Updates the moments, and calls `use(d, i, value, change)`, where the step subtracts lr · change.
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

HWY_EXPORT(Add);
HWY_EXPORT(MultiplyElements);
HWY_EXPORT(AddScaled);
HWY_EXPORT(Scale);
HWY_EXPORT(SumRows);
HWY_EXPORT(SumOfSquares);

void add(std::span<const float> a, std::span<const float> b, std::span<float> out) {
  HWY_DYNAMIC_DISPATCH(Add)(a.data(), b.data(), out.size(), out.data());
}

void multiply_elements(std::span<const float> a, std::span<const float> b, std::span<float> out) {
  HWY_DYNAMIC_DISPATCH(MultiplyElements)(a.data(), b.data(), out.size(), out.data());
}

void add_scaled(std::span<const float> values, float factor, std::span<float> out) {
  HWY_DYNAMIC_DISPATCH(AddScaled)(values.data(), out.size(), factor, out.data());
}

void scale(std::span<float> values, float factor) {
  HWY_DYNAMIC_DISPATCH(Scale)(values.data(), values.size(), factor);
}

void repeat_row(std::span<const float> row, std::span<float> matrix) {
  for (auto at = matrix.begin(); at != matrix.end();) at = std::copy(row.begin(), row.end(), at);
}

void sum_rows(std::span<const float> matrix, std::span<float> sums, Into into) {
  if (into == Into::kOverwrite) std::fill(sums.begin(), sums.end(), 0.0f);
  HWY_DYNAMIC_DISPATCH(SumRows)
  (matrix.data(), matrix.size() / sums.size(), sums.size(), sums.data());
}

double sum_of_squares(std::span<const float> values) {
  return HWY_DYNAMIC_DISPATCH(SumOfSquares)(values.data(), values.size());
}

HWY_EXPORT(RoundToBFloat16);
HWY_EXPORT(Widen);

void round_to_bfloat16(std::span<const float> values, std::span<BFloat16> out) {
  HWY_DYNAMIC_DISPATCH(RoundToBFloat16)
  (values.data(), values.size(), reinterpret_cast<std::uint16_t*>(out.data()));
}

void widen(std::span<const BFloat16> values, std::span<float> out) {
  HWY_DYNAMIC_DISPATCH(Widen)
  (reinterpret_cast<const std::uint16_t*>(values.data()), values.size(), out.data());
}

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
