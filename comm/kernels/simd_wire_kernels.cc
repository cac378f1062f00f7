#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "comm/kernels/simd_kernels.h"

// Highway compiles this file up to HWY_ONCE once per instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "comm/kernels/simd_wire_kernels.cc"
#include "hwy/foreach_target.h"
// Must follow foreach_target.h, which selects the instruction set.
#include "comm/kernels/simd_lanes-inl.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace kolo::simd {
namespace HWY_NAMESPACE {

using TooLarge = std::optional<std::size_t>;
using Largest = std::optional<std::uint16_t>;

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128

// Without vector instructions, the reference kernels are as fast.
TooLarge to_wire_on_target(DType, void*, DType, const void*, std::size_t, int) { return {}; }
Largest from_wire_on_target(DType, void*, DType, const void*, std::size_t, int, Stores) {
  return {};
}

#else

// Returns 2^exponent, which must be a normal number.
inline float power_of_two(int exponent) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(127 + exponent) << 23);
}

// Converts and stores one vector. Returns the number of finite elements that are too large: those
// with a magnitude of at least the float with bits `limit`.
template <class Wire, class D>
std::size_t store_checked(D d, hn::Vec<D> v, hn::Vec<D> scale, std::uint32_t limit,
                          std::uint16_t* to) {
  const auto beyond = is_beyond(d, v, limit);
  Wire::store(d, hn::IfThenElse(beyond, largest_like<Wire>(d, v), finish(d, v, scale)), to);
  return hn::CountTrue(d, beyond);
}

// Multiplies by `scale`, except for bfloat16, which has the range of float32 and needs no exponent.
template <class Wire, class D>
hn::Vec<D> scaled(hn::Vec<D> v, hn::Vec<D> scale) {
  if constexpr (std::is_same_v<Wire, BFloat16AsFloat32>) return v;
  return hn::Mul(v, scale);
}

template <class Wire, class From>
std::size_t to_wire_lanes(std::uint16_t* to, const typename From::Stored* from, std::size_t count,
                          float factor, std::uint32_t limit) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const auto scale = hn::Set(d, factor);
  const auto bound = hn::Set(di, static_cast<std::int32_t>(limit) - 1);
  const auto magnitude = [=](hn::Vec<decltype(d)> v)
                             HWY_ATTR { return hn::BitCast(di, hn::Abs(v)); };
  const std::size_t lanes = hn::Lanes(d);
  std::size_t beyond = 0;
  std::size_t i = 0;
  for (; count - i >= 4 * lanes; i += 4 * lanes) {
    const auto v0 = From::load(d, from + i);
    const auto v1 = From::load(d, from + i + lanes);
    const auto v2 = From::load(d, from + i + 2 * lanes);
    const auto v3 = From::load(d, from + i + 3 * lanes);
    const auto any = hn::Gt(
        hn::Max(hn::Max(magnitude(v0), magnitude(v1)), hn::Max(magnitude(v2), magnitude(v3))),
        bound);
    if (HWY_UNLIKELY(!hn::AllFalse(di, any))) {
      beyond += store_checked<Wire>(d, v0, scale, limit, to + i);
      beyond += store_checked<Wire>(d, v1, scale, limit, to + i + lanes);
      beyond += store_checked<Wire>(d, v2, scale, limit, to + i + 2 * lanes);
      beyond += store_checked<Wire>(d, v3, scale, limit, to + i + 3 * lanes);
      continue;
    }
    using D = decltype(d);
    store_two(Wire(), d, scaled<Wire, D>(v0, scale), scaled<Wire, D>(v1, scale), to + i);
    store_two(Wire(), d, scaled<Wire, D>(v2, scale), scaled<Wire, D>(v3, scale),
              to + i + 2 * lanes);
  }
  const hn::CappedTag<float, 1> one;
  for (; i < count; ++i) {
    const auto v = From::load(one, from + i);
    beyond += store_checked<Wire>(one, v, hn::Set(one, factor), limit, to + i);
  }
  return beyond;
}

template <class Wire>
TooLarge to_wire_as(DType src_dtype, void* dst, const void* src, std::size_t count, int exponent) {
  // Bits of kOverflow * 2^-exponent, a normal number for every allowed exponent.
  const std::uint32_t limit = Wire::kOverflow - (static_cast<std::uint32_t>(exponent) << 23);
  const float factor = power_of_two(exponent);
  auto* const to = static_cast<std::uint16_t*>(dst);
  switch (src_dtype) {
    case DType::kFloat32:
      return to_wire_lanes<Wire, Plain<float> >(to, static_cast<const float*>(src), count, factor,
                                                limit);
    case DType::kFloat16:
      return to_wire_lanes<Wire, Float16AsFloat32>(to, static_cast<const std::uint16_t*>(src),
                                                   count, factor, limit);
    case DType::kBFloat16:
      return to_wire_lanes<Wire, BFloat16AsFloat32>(to, static_cast<const std::uint16_t*>(src),
                                                    count, factor, limit);
    default:
      return {};
  }
}

TooLarge to_wire_on_target(DType wire, void* dst, DType src_dtype, const void* src,
                           std::size_t count, int exponent) {
  return wire == DType::kFloat16
             ? to_wire_as<Float16AsFloat32>(src_dtype, dst, src, count, exponent)
             : to_wire_as<BFloat16AsFloat32>(src_dtype, dst, src, count, exponent);
}

template <class Wire, class To>
std::uint16_t from_wire_lanes(float* to, const std::uint16_t* from, std::size_t count,
                              float factor) {
  const hn::ScalableTag<float> d;
  const hn::Repartition<std::uint16_t, decltype(d)> halves;
  const auto scale = hn::Set(d, factor);
  const auto magnitude = hn::Set(halves, 0x7fff);
  const std::size_t lanes = hn::Lanes(d);
  auto largest_lanes = hn::Zero(halves);
  std::size_t i = 0;
  const auto convert_block = [&](std::size_t end) HWY_ATTR {
    To::own(to + i, to + end);
    for (; i < end; i += 4 * lanes) {
      auto v0 = Wire::load(d, from + i);
      auto v1 = Wire::load(d, from + i + lanes);
      auto v2 = Wire::load(d, from + i + 2 * lanes);
      auto v3 = Wire::load(d, from + i + 3 * lanes);
      const auto bits0 = hn::And(hn::LoadU(halves, from + i), magnitude);
      const auto bits1 = hn::And(hn::LoadU(halves, from + i + 2 * lanes), magnitude);
      largest_lanes = hn::Max(largest_lanes, hn::Max(bits0, bits1));
      finish(d, v0, v1, v2, v3, scale);
      To::put(d, v0, to + i);
      To::put(d, v1, to + i + lanes);
      To::put(d, v2, to + i + 2 * lanes);
      To::put(d, v3, to + i + 3 * lanes);
    }
  };
  for_each_block(i, count, 4 * lanes, sizeof(*to), convert_block);
  HWY_ALIGN std::uint16_t by_lane[hn::MaxLanes(halves)];
  hn::Store(largest_lanes, halves, by_lane);
  std::uint16_t largest = *std::max_element(by_lane, by_lane + hn::Lanes(halves));
  const hn::CappedTag<float, 1> one;
  for (; i < count; ++i) {
    hn::StoreU(finish(one, Wire::load(one, from + i), hn::Set(one, factor)), one, to + i);
    largest = std::max(largest, static_cast<std::uint16_t>(from[i] & 0x7fff));
  }
  return largest;
}

struct Cached {
  static void own(float* begin, float* end) { prefetch_for_write(begin, end); }
  template <class D>
  static void put(D d, hn::Vec<D> v, float* to) {
    hn::StoreU(v, d, to);
  }
};
// Stores that bypass the cache; `to` must be aligned to the vector.
struct Streaming {
  static void own(float*, float*) {}
  template <class D>
  static void put(D d, hn::Vec<D> v, float* to) {
    hn::Stream(v, d, to);
  }
};

template <class Wire>
std::uint16_t from_wire_as(float* to, const std::uint16_t* from, std::size_t count, int exponent,
                           Stores stores) {
  const float factor = power_of_two(-exponent);
  if (stores == Stores::kCached || count * sizeof(float) < kLeastStreamBytes) {
    return from_wire_lanes<Wire, Cached>(to, from, count, factor);
  }
  const std::size_t head = misaligned_elements(hn::ScalableTag<float>(), to);
  const std::uint16_t first = from_wire_lanes<Wire, Cached>(to, from, head, factor);
  const std::uint16_t rest =
      from_wire_lanes<Wire, Streaming>(to + head, from + head, count - head, factor);
  hwy::FlushStream();
  return std::max(first, rest);
}

Largest from_wire_on_target(DType dst_dtype, void* dst, DType wire, const void* src,
                            std::size_t count, int exponent, Stores stores) {
  if (dst_dtype != DType::kFloat32) return {};
  auto* const to = static_cast<float*>(dst);
  const auto* const from = static_cast<const std::uint16_t*>(src);
  return wire == DType::kFloat16
             ? from_wire_as<Float16AsFloat32>(to, from, count, exponent, stores)
             : from_wire_as<BFloat16AsFloat32>(to, from, count, exponent, stores);
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace kolo::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kolo::simd {

HWY_EXPORT(to_wire_on_target);
HWY_EXPORT(from_wire_on_target);

std::optional<std::size_t> to_wire(DType wire, void* dst, DType src_dtype, const void* src,
                                   std::size_t count, int exponent) {
  return HWY_DYNAMIC_DISPATCH(to_wire_on_target)(wire, dst, src_dtype, src, count, exponent);
}

std::optional<std::uint16_t> from_wire(DType dst_dtype, void* dst, DType wire, const void* src,
                                       std::size_t count, int exponent, Stores stores) {
  return HWY_DYNAMIC_DISPATCH(from_wire_on_target)(dst_dtype, dst, wire, src, count, exponent,
                                                   stores);
}

}  // namespace kolo::simd
#endif
