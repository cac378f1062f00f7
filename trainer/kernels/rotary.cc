#include "trainer/kernels/rotary.h"

#include <cstddef>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trainer/kernels/rotary.cc"
#include <hwy/foreach_target.h>  // must precede highway.h

#include <hwy/highway.h>

#include "trainer/kernels/for_each-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kolo::trainer {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void RotatePairs(const float* x, std::size_t count, const float* cosines, const float* sines,
                 std::size_t pairs, float* y) {
  for (std::size_t begin = 0; begin < count; begin += 2 * pairs) {
    const float* first = x + begin;
    const float* second = first + pairs;
    float* out = y + begin;
    for_each(pairs, [=](auto d, std::size_t i) HWY_ATTR {
      const auto a = hn::LoadU(d, first + i);
      const auto b = hn::LoadU(d, second + i);
      const auto c = hn::LoadU(d, cosines + i);
      const auto s = hn::LoadU(d, sines + i);
      hn::StoreU(hn::NegMulAdd(b, s, hn::Mul(a, c)), d, out + i);
      hn::StoreU(hn::MulAdd(a, s, hn::Mul(b, c)), d, out + pairs + i);
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kolo::trainer
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kolo::trainer {

HWY_EXPORT(RotatePairs);

void rotate_pairs(std::span<const float> x, std::span<const float> cosines,
                  std::span<const float> sines, std::span<float> y) {
  HWY_DYNAMIC_DISPATCH(RotatePairs)
  (x.data(), x.size(), cosines.data(), sines.data(), cosines.size(), y.data());
}

}  // namespace kolo::trainer
#endif
