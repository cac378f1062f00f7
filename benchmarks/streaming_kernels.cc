#include "benchmarks/streaming_kernels.h"

// Highway compiles everything up to HWY_ONCE once per instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "benchmarks/streaming_kernels.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace kolo::bench {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Calls `step` for every vector, four at a time. The sizes that are measured leave no rest.
template <typename Step>
void for_vectors(std::size_t lanes, std::size_t count, const Step& step) {
  for (std::size_t i = 0; i + 4 * lanes <= count; i += 4 * lanes) {
    step(i);
    step(i + lanes);
    step(i + 2 * lanes);
    step(i + 3 * lanes);
  }
}

void sum_on_target(float* sum, const float* a, const float* b, std::size_t count) {
  const hn::ScalableTag<float> d;
  for_vectors(hn::Lanes(d), count, [=](std::size_t i) HWY_ATTR {
    hn::StoreU(hn::Add(hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, sum + i);
  });
}

void narrow_on_target(std::uint16_t* to, const std::uint32_t* from, std::size_t count) {
  const hn::ScalableTag<std::uint32_t> d;
  const hn::Rebind<std::uint16_t, decltype(d)> narrow;
  const hn::RebindToSigned<decltype(d)> di;
  for_vectors(hn::Lanes(d), count, [=](std::size_t i) HWY_ATTR {
    const auto wide = hn::BitCast(di, hn::ShiftRight<16>(hn::LoadU(d, from + i)));
    hn::StoreU(hn::DemoteTo(narrow, wide), narrow, to + i);
  });
}

void widen_on_target(std::uint32_t* to, const std::uint16_t* from, std::size_t count) {
  const hn::ScalableTag<std::uint32_t> d;
  const hn::Rebind<std::uint16_t, decltype(d)> narrow;
  for_vectors(hn::Lanes(d), count, [=](std::size_t i) HWY_ATTR {
    hn::StoreU(hn::PromoteTo(d, hn::LoadU(narrow, from + i)), d, to + i);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace kolo::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kolo::bench {

HWY_EXPORT(sum_on_target);
HWY_EXPORT(narrow_on_target);
HWY_EXPORT(widen_on_target);

void stream_add(float* in_out, const float* in, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(sum_on_target)(in_out, in_out, in, count);
}
void stream_sum(float* sum, const float* a, const float* b, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(sum_on_target)(sum, a, b, count);
}
void stream_narrow(std::uint16_t* to, const std::uint32_t* from, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(narrow_on_target)(to, from, count);
}
void stream_widen(std::uint32_t* to, const std::uint16_t* from, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(widen_on_target)(to, from, count);
}

}  // namespace kolo::bench
#endif
