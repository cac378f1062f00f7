#include "benchmarks/codec/streaming_kernels.h"

// Highway compiles everything up to HWY_ONCE once per instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "benchmarks/codec/streaming_kernels.cc"
#include "hwy/cache_control.h"
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

// Calls `run` with a function that stores a vector as wished.
template <class D, typename Run>
void with_store(D d, Stores stores, const Run& run) {
  if (stores == Stores::kCached) {
    run([=](hn::Vec<D> v, hn::TFromD<D>* to) HWY_ATTR { hn::StoreU(v, d, to); });
  } else {
    run([=](hn::Vec<D> v, hn::TFromD<D>* to) HWY_ATTR { hn::Stream(v, d, to); });
    hwy::FlushStream();
  }
}

void sum_on_target(float* sum, const float* a, const float* b, std::size_t count, Stores stores) {
  const hn::ScalableTag<float> d;
  with_store(d, stores, [=](auto store) HWY_ATTR {
    for_vectors(hn::Lanes(d), count, [=](std::size_t i) HWY_ATTR {
      store(hn::Add(hn::LoadU(d, a + i), hn::LoadU(d, b + i)), sum + i);
    });
  });
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

void stream_add(float* in_out, const float* in, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(sum_on_target)(in_out, in_out, in, count, Stores::kCached);
}
void stream_sum(float* sum, const float* a, const float* b, std::size_t count, Stores stores) {
  HWY_DYNAMIC_DISPATCH(sum_on_target)(sum, a, b, count, stores);
}
void stream_narrow(std::uint16_t* to, const float* from, std::size_t count, Stores stores) {
  HWY_DYNAMIC_DISPATCH(narrow_on_target)(to, from, count, stores);
}
void stream_widen(float* to, const std::uint16_t* from, std::size_t count, Stores stores) {
  HWY_DYNAMIC_DISPATCH(widen_on_target)(to, from, count, stores);
}

}  // namespace kolo::bench
#endif
