#include "comm/kernels/simd_kernels.h"

#include <cstdint>
#include <type_traits>

// Highway compiles this file up to HWY_ONCE once per instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "comm/kernels/simd_copy_kernels.cc"
#include "hwy/foreach_target.h"
// Must follow foreach_target.h, which selects the instruction set.
#include "comm/kernels/simd_lanes-inl.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace kolo::simd {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128

// Without vector instructions, the reference kernels are as fast.
bool convert_on_target(DType, void*, DType, const void*, std::size_t, double, Stores) {
  return false;
}
bool exchange_on_target(void*, void*, const void*, std::size_t, Stores) { return false; }

#else

template <class To, class From, int kUnroll, class D>
std::size_t convert_steps(D d, typename To::Stored* dst, const typename From::Stored* src,
                          std::size_t i, std::size_t count, hn::Vec<D> scale) {
  const std::size_t lanes = hn::Lanes(d);
  const auto at = [=](std::size_t k) HWY_ATTR { return finish(d, From::load(d, src + k), scale); };
  for (; count - i >= kUnroll * lanes; i += kUnroll * lanes) {
    if constexpr (kUnroll == 1) {
      To::store(d, at(i), dst + i);
    } else {
      for (std::size_t k = i; k < i + kUnroll * lanes; k += 2 * lanes) {
        store_two(To(), d, at(k), at(k + lanes), dst + k);
      }
    }
  }
  return i;
}

// Converts in steps of 4 vectors with streaming stores. Returns the first remaining index.
template <class To, class From, class D>
std::size_t convert_streaming(D d, typename To::Stored* dst, const typename From::Stored* src,
                              std::size_t count, hn::Vec<D> scale) {
  if (reinterpret_cast<std::uintptr_t>(dst) % sizeof(*dst) != 0) return 0;
  const hn::CappedTag<typename To::Accum, 1> one;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = convert_steps<To, From, 1>(one, dst, src, 0, misaligned_elements(d, dst),
                                             hn::Set(one, hn::GetLane(scale)));
  for (; count - i >= 4 * lanes; i += 4 * lanes) {
    for (std::size_t k = i; k < i + 4 * lanes; k += lanes) {
      To::stream(d, finish(d, From::load(d, src + k), scale), dst + k);
    }
  }
  hwy::FlushStream();
  return i;
}

template <class To, class From>
bool convert_lanes(void* dst, const void* src, std::size_t count, double scale, Stores stores) {
  using A = typename To::Accum;
  static_assert(std::is_same_v<A, typename From::Accum>);
  const hn::ScalableTag<A> full;
  const hn::CappedTag<A, 1> one;
  const A factor = static_cast<A>(scale);
  auto* const out = static_cast<typename To::Stored*>(dst);
  const auto* const in = static_cast<const typename From::Stored*>(src);
  std::size_t i = 0;
  if constexpr (std::is_same_v<To, Plain<A> >) {
    if (stores == Stores::kStreaming && count * sizeof(A) >= kLeastStreamBytes) {
      i = convert_streaming<To, From>(full, out, in, count, hn::Set(full, factor));
    }
  }
  for_each_block(i, count, 4 * hn::Lanes(full), sizeof(*out), [&](std::size_t end) HWY_ATTR {
    // Conversion to narrower elements is limited by reads, so prefetching for writes is useless.
    if constexpr (sizeof(*out) >= sizeof(*in)) prefetch_for_write(out + i, out + end);
    i = convert_steps<To, From, 4>(full, out, in, i, end, hn::Set(full, factor));
  });
  i = convert_steps<To, From, 1>(full, out, in, i, count, hn::Set(full, factor));
  convert_steps<To, From, 1>(one, out, in, i, count, hn::Set(one, factor));
  return true;
}

template <class To>
bool convert_to(DType src_dtype, void* dst, const void* src, std::size_t count, double scale,
                Stores stores) {
  switch (src_dtype) {
    case DType::kFloat32:
      return convert_lanes<To, Plain<float> >(dst, src, count, scale, stores);
    case DType::kFloat16:
      return convert_lanes<To, Float16AsFloat32>(dst, src, count, scale, stores);
    case DType::kBFloat16:
      return convert_lanes<To, BFloat16AsFloat32>(dst, src, count, scale, stores);
    default:
      return false;
  }
}

bool convert_on_target(DType dst_dtype, void* dst, DType src_dtype, const void* src,
                       std::size_t count, double scale, Stores stores) {
  if (src_dtype == dst_dtype && scale == 1.0) {
    return convert_lanes<Plain<std::uint8_t>, Plain<std::uint8_t> >(
        dst, src, count * size_of(src_dtype), scale, stores);
  }
  if (src_dtype == DType::kFloat64 && dst_dtype == DType::kFloat64) {
    return convert_lanes<Plain<double>, Plain<double> >(dst, src, count, scale, stores);
  }
  if (src_dtype == DType::kFloat64 && dst_dtype == DType::kFloat32) {
    return convert_lanes<Float32AsFloat64, Plain<double> >(dst, src, count, scale, stores);
  }
  if (src_dtype == DType::kFloat32 && dst_dtype == DType::kFloat64) {
    return convert_lanes<Plain<double>, Float32AsFloat64>(dst, src, count, scale, stores);
  }
  switch (dst_dtype) {
    case DType::kFloat32:
      return convert_to<Plain<float> >(src_dtype, dst, src, count, scale, stores);
    case DType::kFloat16:
      return convert_to<Float16AsFloat32>(src_dtype, dst, src, count, scale, stores);
    case DType::kBFloat16:
      return convert_to<BFloat16AsFloat32>(src_dtype, dst, src, count, scale, stores);
    default:
      return false;
  }
}

// Exchanges in steps of kUnroll vectors; `store` writes to `out`. Returns the index of the first
// remaining byte.
template <int kUnroll, class D, class Store>
std::size_t exchange_steps(D d, std::uint8_t* out, std::uint8_t* slot, const std::uint8_t* in,
                           std::size_t i, std::size_t bytes, const Store& store) {
  const std::size_t lanes = hn::Lanes(d);
  for (; bytes - i >= kUnroll * lanes; i += kUnroll * lanes) {
    for (std::size_t k = i; k < i + kUnroll * lanes; k += lanes) {
      const auto next = hn::LoadU(d, in + k);
      const auto former = hn::LoadU(d, slot + k);
      hn::StoreU(next, d, slot + k);
      store(former, out + k);
    }
  }
  return i;
}

bool exchange_on_target(void* out, void* slot, const void* in, std::size_t bytes, Stores stores) {
  const hn::ScalableTag<std::uint8_t> full;
  const hn::CappedTag<std::uint8_t, 1> one;
  const auto cached = [](auto d) HWY_ATTR {
    return [d](auto v, std::uint8_t* to) HWY_ATTR { hn::StoreU(v, d, to); };
  };
  auto* const to = static_cast<std::uint8_t*>(out);
  auto* const through = static_cast<std::uint8_t*>(slot);
  const auto* const from = static_cast<const std::uint8_t*>(in);
  std::size_t i = 0;
  if (stores == Stores::kStreaming && bytes >= kLeastStreamBytes) {
    i = exchange_steps<1>(one, to, through, from, 0, misaligned_elements(full, to), cached(one));
    i = exchange_steps<4>(full, to, through, from, i, bytes,
                          [full](auto v, std::uint8_t* at) HWY_ATTR { hn::Stream(v, full, at); });
    hwy::FlushStream();
  }
  for_each_block(i, bytes, 4 * hn::Lanes(full), 1, [&](std::size_t end) HWY_ATTR {
    prefetch_for_write(through + i, through + end);
    prefetch_for_write(to + i, to + end);
    i = exchange_steps<4>(full, to, through, from, i, end, cached(full));
  });
  i = exchange_steps<1>(full, to, through, from, i, bytes, cached(full));
  exchange_steps<1>(one, to, through, from, i, bytes, cached(one));
  return true;
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace kolo::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kolo::simd {

HWY_EXPORT(convert_on_target);
HWY_EXPORT(exchange_on_target);

bool convert(DType dst_dtype, void* dst, DType src_dtype, const void* src, std::size_t count,
             double scale, Stores stores) {
  return HWY_DYNAMIC_DISPATCH(convert_on_target)(dst_dtype, dst, src_dtype, src, count, scale,
                                                 stores);
}

bool exchange(void* out, void* slot, const void* in, std::size_t bytes, Stores stores) {
  return HWY_DYNAMIC_DISPATCH(exchange_on_target)(out, slot, in, bytes, stores);
}

}  // namespace kolo::simd
#endif
