#include "benchmarks/common/streaming_kernels.h"

// Highway compiles everything up to HWY_ONCE once per instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "benchmarks/common/streaming_kernels.cc"
#include "hwy/foreach_target.h"
// These follow foreach_target.h, which sets the instruction set.
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace kolo::bench {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Calls `run` with a function that stores a vector, either cached or streaming.
template <class D, typename Run>
void with_store(D d, Stores stores, const Run& run) {
  if (stores == Stores::kCached) {
    run([=](hn::Vec<D> v, hn::TFromD<D>* to) HWY_ATTR { hn::StoreU(v, d, to); });
  } else {
    run([=](hn::Vec<D> v, hn::TFromD<D>* to) HWY_ATTR { hn::Stream(v, d, to); });
    hwy::FlushStream();
  }
}

void sum_on_target(std::span<const float* const> in, std::span<float* const> out, std::size_t count,
                   Stores stores) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d), whole = count / (4 * lanes) * (4 * lanes);
  with_store(d, stores, [=](auto store) HWY_ATTR {
    for (std::size_t i = 0; i < whole; i += 4 * lanes) {
      auto sum0 = hn::LoadU(d, in[0] + i);
      auto sum1 = hn::LoadU(d, in[0] + i + lanes);
      auto sum2 = hn::LoadU(d, in[0] + i + 2 * lanes);
      auto sum3 = hn::LoadU(d, in[0] + i + 3 * lanes);
      for (const float* source : in.subspan(1)) {
        sum0 = hn::Add(sum0, hn::LoadU(d, source + i));
        sum1 = hn::Add(sum1, hn::LoadU(d, source + i + lanes));
        sum2 = hn::Add(sum2, hn::LoadU(d, source + i + 2 * lanes));
        sum3 = hn::Add(sum3, hn::LoadU(d, source + i + 3 * lanes));
      }
      for (float* target : out) {
        store(sum0, target + i);
        store(sum1, target + i + lanes);
        store(sum2, target + i + 2 * lanes);
        store(sum3, target + i + 3 * lanes);
      }
    }
  });
  for (std::size_t i = whole; i < count; ++i) {
    float sum = in[0][i];
    for (const float* source : in.subspan(1)) sum += source[i];
    for (float* target : out) target[i] = sum;
  }
}

// Calls `step` for every vector, four at a time. `count` is a multiple of four vectors.
template <typename Step>
void for_vectors(std::size_t lanes, std::size_t count, const Step& step) {
  for (std::size_t i = 0; i + 4 * lanes <= count; i += 4 * lanes) {
    step(i);
    step(i + lanes);
    step(i + 2 * lanes);
    step(i + 3 * lanes);
  }
}

void narrow_on_target(std::uint16_t* to, const float* from, std::size_t count, Stores stores) {
  const hn::ScalableTag<std::uint16_t> d;
  const auto* const bits = reinterpret_cast<const std::uint16_t*>(from);
  with_store(d, stores, [=](auto store) HWY_ATTR {
    for_vectors(hn::Lanes(d), count, [=](std::size_t i) HWY_ATTR {
      const auto first = hn::LoadU(d, bits + 2 * i);
      store(hn::Or(first, hn::LoadU(d, bits + 2 * i + hn::Lanes(d))), to + i);
    });
  });
}

void widen_on_target(float* to, const std::uint16_t* from, std::size_t count, Stores stores) {
  const hn::ScalableTag<std::uint16_t> d;
  auto* const bits = reinterpret_cast<std::uint16_t*>(to);
  with_store(d, stores, [=](auto store) HWY_ATTR {
    for_vectors(hn::Lanes(d), count, [=](std::size_t i) HWY_ATTR {
      const auto both = hn::LoadU(d, from + i);
      store(both, bits + 2 * i);
      store(both, bits + 2 * i + hn::Lanes(d));
    });
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

void streaming_sum(std::span<const float* const> in, std::span<float* const> out, std::size_t count,
                   Stores stores) {
  HWY_DYNAMIC_DISPATCH(sum_on_target)(in, out, count, stores);
}
void stream_narrow(std::uint16_t* to, const float* from, std::size_t count, Stores stores) {
  HWY_DYNAMIC_DISPATCH(narrow_on_target)(to, from, count, stores);
}
void stream_widen(float* to, const std::uint16_t* from, std::size_t count, Stores stores) {
  HWY_DYNAMIC_DISPATCH(widen_on_target)(to, from, count, stores);
}

}  // namespace kolo::bench
#endif
