#include "benchmarks/peers/streaming_sum.h"

// Highway compiles everything up to HWY_ONCE once per instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "benchmarks/peers/streaming_sum.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which sets the instruction set.
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace kolo::bench {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <Stores kStores>
void sum_streams(std::span<const float* const> in, std::span<float* const> out, std::size_t count) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  const auto store = [&](auto sum, float* target) {
    if constexpr (kStores == Stores::kCached) {
      hn::Store(sum, d, target);
    } else {
      hn::Stream(sum, d, target);
    }
  };
  std::size_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    auto sum0 = hn::Load(d, in[0] + i);
    auto sum1 = hn::Load(d, in[0] + i + lanes);
    auto sum2 = hn::Load(d, in[0] + i + 2 * lanes);
    auto sum3 = hn::Load(d, in[0] + i + 3 * lanes);
    for (const float* source : in.subspan(1)) {
      sum0 = hn::Add(sum0, hn::Load(d, source + i));
      sum1 = hn::Add(sum1, hn::Load(d, source + i + lanes));
      sum2 = hn::Add(sum2, hn::Load(d, source + i + 2 * lanes));
      sum3 = hn::Add(sum3, hn::Load(d, source + i + 3 * lanes));
    }
    for (float* target : out) {
      store(sum0, target + i);
      store(sum1, target + i + lanes);
      store(sum2, target + i + 2 * lanes);
      store(sum3, target + i + 3 * lanes);
    }
  }
  for (; i < count; ++i) {
    float sum = in[0][i];
    for (const float* source : in.subspan(1)) sum += source[i];
    for (float* target : out) target[i] = sum;
  }
  hwy::FlushStream();
}

void sum_on_target(std::span<const float* const> in, std::span<float* const> out, std::size_t count,
                   Stores stores) {
  if (stores == Stores::kCached) return sum_streams<Stores::kCached>(in, out, count);
  sum_streams<Stores::kStreaming>(in, out, count);
}

}  // namespace HWY_NAMESPACE
}  // namespace kolo::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kolo::bench {

HWY_EXPORT(sum_on_target);

void streaming_sum(std::span<const float* const> in, std::span<float* const> out, std::size_t count,
                   Stores stores) {
  HWY_DYNAMIC_DISPATCH(sum_on_target)(in, out, count, stores);
}

}  // namespace kolo::bench
#endif
