#include "compression/kernels/block_energy.h"

#include <array>
#include <cstddef>

// Highway compiles everything up to HWY_ONCE once per instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compression/kernels/block_energy.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#ifndef KOLO_BLOCK_ENERGY_PARTIALS
#define KOLO_BLOCK_ENERGY_PARTIALS
namespace kolo {
inline constexpr std::size_t kPartials = 64;
using Partials = std::array<float, kPartials>;

// Adds the values after the last whole row to the partial sums, then sums those.
inline float add_up(std::span<const float> rest, Partials& partials) {
  for (std::size_t i = 0; i < rest.size(); ++i) partials[i] += rest[i] * rest[i];
  for (std::size_t half = kPartials / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) partials[i] += partials[i + half];
  }
  return partials[0];
}
}  // namespace kolo
#endif

HWY_BEFORE_NAMESPACE();
namespace kolo::simd {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128

// No vectors: the reference is as fast.
float block_energy_on_target(std::span<const float> values) {
  return reference::block_energy(values);
}

#else

template <class D>
HWY_INLINE hn::Vec<D> plus_square(D d, hn::Vec<D> sum, const float* values) {
  const auto v = hn::LoadU(d, values);
  return hn::Add(sum, hn::Mul(v, v));
}

float block_energy_on_target(std::span<const float> values) {
  const hn::CappedTag<float, 16> d;
  const std::size_t lanes = hn::Lanes(d);
  const std::size_t whole = values.size() / kPartials * kPartials;
  alignas(64) Partials partials;
  // Four independent sums hide the latency of an addition.
  for (std::size_t j = 0; j < kPartials; j += 4 * lanes) {
    auto a = hn::Zero(d), b = a, c = a, e = a;
    for (std::size_t i = j; i < whole; i += kPartials) {
      a = plus_square(d, a, values.data() + i);
      b = plus_square(d, b, values.data() + i + lanes);
      c = plus_square(d, c, values.data() + i + 2 * lanes);
      e = plus_square(d, e, values.data() + i + 3 * lanes);
    }
    hn::StoreU(a, d, partials.data() + j);
    hn::StoreU(b, d, partials.data() + j + lanes);
    hn::StoreU(c, d, partials.data() + j + 2 * lanes);
    hn::StoreU(e, d, partials.data() + j + 3 * lanes);
  }
  return add_up(values.subspan(whole), partials);
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace kolo::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kolo {
namespace simd {
HWY_EXPORT(block_energy_on_target);
}  // namespace simd

float block_energy(std::span<const float> values) {
  using namespace simd;
  return HWY_DYNAMIC_DISPATCH(block_energy_on_target)(values);
}

float reference::block_energy(std::span<const float> values) {
  Partials partials{};
  const std::size_t whole = values.size() / kPartials * kPartials;
  for (std::size_t i = 0; i < whole; ++i) partials[i % kPartials] += values[i] * values[i];
  return add_up(values.subspan(whole), partials);
}

}  // namespace kolo
#endif
