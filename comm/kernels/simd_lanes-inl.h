// Loads, stores and operations of the vector kernels. The include guard toggles because Highway
// compiles this file once per instruction set.
#if defined(KOLO_COMM_COLLECTIVE_SIMD_LANES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef KOLO_COMM_COLLECTIVE_SIMD_LANES_INL_H
#undef KOLO_COMM_COLLECTIVE_SIMD_LANES_INL_H
#else
#define KOLO_COMM_COLLECTIVE_SIMD_LANES_INL_H
#endif

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "comm/kernels/combine.h"
#include "comm/kernels/simd_kernels.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace kolo::simd {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// A "lanes" class converts elements in memory (`Stored`) to vectors of the accumulation type
// (`Accum`) and back. `d` is always the Highway tag of the Accum vector.

template <typename T>
struct Plain {
  using Stored = T;
  using Accum = T;
  template <class D>
  static hn::Vec<D> load(D d, const Stored* from) {
    return hn::LoadU(d, from);
  }
  template <class D>
  static void store(D d, hn::Vec<D> v, Stored* to) {
    hn::StoreU(v, d, to);
  }
  // Bypasses the cache; `to` must be aligned to the vector.
  template <class D>
  static void stream(D d, hn::Vec<D> v, Stored* to) {
    hn::Stream(v, d, to);
  }
};

// Smallest array, in bytes, for streaming stores, which cost time to start and to drain.
constexpr std::size_t kLeastStreamBytes = 4096;

// Number of elements before the first aligned vector of `d`.
template <class D>
std::size_t misaligned_elements(D d, const hn::TFromD<D>* to) {
  const std::size_t bytes = hn::Lanes(d) * sizeof(*to);
  return (bytes - reinterpret_cast<std::uintptr_t>(to) % bytes) % bytes / sizeof(*to);
}

// Cuts the elements [begin, count) into blocks of whole steps and calls work(end) for each. The
// cache lines of a block can be prefetched for writing at once. A remainder is left out.
template <class Work>
void for_each_block(std::size_t begin, std::size_t count, std::size_t step,
                    std::size_t element_bytes, const Work& work) {
  const std::size_t block = std::max(kOwnedBytes / element_bytes / step, std::size_t{1}) * step;
  while (count - begin >= step) {
    const std::size_t end = begin + std::min(block, (count - begin) / step * step);
    work(end);
    begin = end;
  }
}

// Lanes L whose stores bypass the cache; addresses must be aligned to the vector.
template <class L>
struct PastCache : L {
  template <class D>
  static void store(D d, hn::Vec<D> v, typename L::Stored* to) {
    L::stream(d, v, to);
  }
};

struct Float32AsFloat64 {
  using Stored = float;
  using Accum = double;
  template <class D>
  static hn::Vec<D> load(D d, const Stored* from) {
    return hn::PromoteTo(d, hn::LoadU(hn::Rebind<float, D>(), from));
  }
  template <class D>
  static void store(D, hn::Vec<D> v, Stored* to) {
    const hn::Rebind<float, D> narrow;
    hn::StoreU(hn::DemoteTo(narrow, v), narrow, to);
  }
};

// Stores the low half of each 32-bit lane; the high halves are zero.
template <class D, class V>
void store_low_halves(D, V bits, std::uint16_t* to) {
  const hn::RebindToSigned<D> di;
  const hn::Rebind<std::uint16_t, D> narrow;
  hn::StoreU(hn::DemoteTo(narrow, hn::BitCast(di, bits)), narrow, to);
}

struct BFloat16AsFloat32 {
  using Stored = std::uint16_t;
  using Accum = float;
  static constexpr std::uint32_t kLargest = 0x7f7f0000;   // Largest finite value, as bits of a
                                                          // float.
  static constexpr std::uint32_t kOverflow = 0x7f7f8000;  // Bits of the smallest magnitude that
                                                          // rounds to infinity.
  template <class D>
  static hn::Vec<D> load(D d, const Stored* from) {
    const hn::RebindToUnsigned<D> du;
    const hn::Rebind<Stored, D> narrow;
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(narrow, from))));
  }
  template <class D>
  static void store(D d, hn::Vec<D> v, Stored* to) {
    store_low_halves(d, hn::ShiftRight<16>(rounded(d, v)), to);
  }
  // Returns bits whose upper half is `v` rounded to nearest even. NaN needs no special case,
  // because only the canonical NaN is passed.
  template <class D>
  static hn::Vec<hn::RebindToUnsigned<D>> rounded(D, hn::Vec<D> v) {
    const hn::RebindToUnsigned<D> du;
    const auto bits = hn::BitCast(du, v);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
    return hn::Add(hn::Add(bits, hn::Set(du, 0x7fff)), odd);
  }
};

struct Float16AsFloat32 {
  using Stored = std::uint16_t;
  using Accum = float;
  static constexpr std::uint32_t kLargest = 0x477fe000;
  static constexpr std::uint32_t kOverflow = 0x477ff000;

#if (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2) || HWY_ARCH_ARM_A64
  // Conversions in hardware: F16C, or the instructions of A64.
  template <class D>
  static hn::Vec<D> load(D d, const Stored* from) {
    const hn::Rebind<hwy::float16_t, D> half;
    const hn::Rebind<Stored, D> narrow;
    return hn::PromoteTo(d, hn::BitCast(half, hn::LoadU(narrow, from)));
  }
  template <class D>
  static void store(D, hn::Vec<D> v, Stored* to) {
    const hn::Rebind<hwy::float16_t, D> half;
    const hn::Rebind<Stored, D> narrow;
    hn::StoreU(hn::BitCast(narrow, hn::DemoteTo(half, v)), narrow, to);
  }
#else
  // Highway's emulation does not handle infinity and NaN, and does not round to nearest. These
  // functions are the scalar conversions of comm/base/half.h with all branches computed.
  template <class D>
  static hn::Vec<D> load(D d, const Stored* from) {
    const hn::RebindToUnsigned<D> du;
    const hn::Rebind<Stored, D> narrow;
    const auto bits = hn::PromoteTo(du, hn::LoadU(narrow, from));
    const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(du, 0x8000)));
    const auto magnitude = hn::ShiftLeft<13>(hn::And(bits, hn::Set(du, 0x7fff)));
    const auto exponent_mask = hn::Set(du, 0x1fu << 23);
    const auto exponent = hn::And(magnitude, exponent_mask);
    const auto rebias = hn::Set(du, (127u - 15u) << 23);
    const auto smallest_normal = hn::Set(du, (127u - 14u) << 23);
    const auto normal = hn::Add(magnitude, rebias);
    const auto subnormal =
        hn::BitCast(du, hn::Sub(hn::BitCast(d, hn::Add(magnitude, smallest_normal)),
                                hn::BitCast(d, smallest_normal)));
    const auto finite = hn::IfThenElse(hn::Eq(exponent, hn::Zero(du)), subnormal, normal);
    const auto result =
        hn::IfThenElse(hn::Eq(exponent, exponent_mask), hn::Add(normal, rebias), finite);
    return hn::BitCast(d, hn::Or(sign, result));
  }
  template <class D>
  static void store(D d, hn::Vec<D> v, Stored* to) {
    const hn::RebindToSigned<D> di;
    const auto bits = hn::BitCast(di, v);
    const auto magnitude = hn::And(bits, hn::Set(di, 0x7fffffff));
    const auto sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(di, 0x8000));
    const auto magic = hn::Set(d, 0.5f);
    const auto subnormal =
        hn::Sub(hn::BitCast(di, hn::Add(hn::BitCast(d, magnitude), magic)), hn::BitCast(di, magic));
    const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(di, 1));
    const auto normal = hn::ShiftRight<13>(
        hn::Add(hn::Sub(magnitude, hn::Set(di, ((127 - 15) << 23) - 0xfff)), odd));
    const auto is_nan = hn::Gt(magnitude, hn::Set(di, 0x7f800000));
    const auto special = hn::IfThenElse(is_nan, hn::Set(di, 0x7e00), hn::Set(di, 0x7c00));
    const auto is_subnormal = hn::Lt(magnitude, hn::Set(di, (127 - 14) << 23));
    const auto is_finite = hn::Lt(magnitude, hn::Set(di, (127 + 16) << 23));
    const auto finite = hn::IfThenElse(is_subnormal, subnormal, normal);
    store_low_halves(d, hn::Or(sign, hn::IfThenElse(is_finite, finite, special)), to);
  }
#endif
};

// Stores vector `a` at `to` and vector `b` at `to + lanes`.
template <class L, class D, class V>
void store_two(L, D d, V a, V b, typename L::Stored* to) {
  L::store(d, a, to);
  L::store(d, b, to + hn::Lanes(d));
}
#if HWY_TARGET != HWY_SCALAR  // The scalar target has no pairs of lanes, and no kernels.
template <class D, class V>
void store_two(BFloat16AsFloat32, D d, V a, V b, std::uint16_t* to) {
  const hn::Repartition<std::uint16_t, D> halves;
  const auto high = hn::BitCast(halves, BFloat16AsFloat32::rounded(d, b));
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  // Interleaves both vectors in one, then permutes it into order. A permutation of two vectors
  // would overwrite one of them, and compilers would copy that vector first.
  const auto low = hn::BitCast(halves, hn::ShiftRight<16>(BFloat16AsFloat32::rounded(d, a)));
  HWY_ALIGN static constexpr std::uint16_t kOrder[32] = {0,  2,  4,  6,  8,  10, 12, 14, 16, 18, 20,
                                                         22, 24, 26, 28, 30, 1,  3,  5,  7,  9,  11,
                                                         13, 15, 17, 19, 21, 23, 25, 27, 29, 31};
  const hn::Vec<decltype(halves)> both{
      _mm512_permutexvar_epi16(hn::Load(halves, kOrder).raw, hn::OddEven(high, low).raw)};
#else
  const auto low = hn::BitCast(halves, BFloat16AsFloat32::rounded(d, a));
  const auto both = hn::ConcatOdd(halves, high, low);
#endif
  hn::StoreU(both, halves, to);
}
#if (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2) || HWY_ARCH_ARM_A64
// Stores a whole vector at once: two half stores take a quarter longer on AMD's Zen 5.
template <class D, class V>
void store_two(Float16AsFloat32, D, V a, V b, std::uint16_t* to) {
  const hn::Rebind<hwy::float16_t, D> half;
  const hn::Rebind<std::uint16_t, D> narrow;
  const hn::Repartition<std::uint16_t, D> halves;
  const auto low = hn::BitCast(narrow, hn::DemoteTo(half, a));
  const auto high = hn::BitCast(narrow, hn::DemoteTo(half, b));
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  // hn::Combine() would first clear the upper half in a copy.
  const hn::Vec<decltype(halves)> both{
      _mm512_inserti64x4(_mm512_castsi256_si512(low.raw), high.raw, 1)};
#else
  const auto both = hn::Combine(halves, high, low);
#endif
  hn::StoreU(both, halves, to);
}
#endif
#endif

// Returns a mask of the finite values with a magnitude of at least the float with bits `least`.
template <class D>
hn::Mask<D> is_beyond(D d, hn::Vec<D> v, std::uint32_t least) {
  // Adding kRoom makes the bits of infinity and NaN negative, so one comparison suffices.
  constexpr std::uint32_t kRoom = 0x80000000u - 0x7f800000u;
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  const auto magnitude = hn::And(hn::BitCast(du, v), hn::Set(du, 0x7fffffff));
  const auto moved = hn::BitCast(di, hn::Add(magnitude, hn::Set(du, kRoom)));
  const auto bound = hn::Set(di, static_cast<std::int32_t>(least - 1 + kRoom));
  return hn::RebindMask(d, hn::Gt(moved, bound));
}

// Returns the largest finite value of lanes L, with the sign of `v`.
template <class L, class D>
hn::Vec<D> largest_like(D d, hn::Vec<D> v) {
  const hn::RebindToUnsigned<D> du;
  return hn::CopySign(hn::BitCast(d, hn::Set(du, L::kLargest)), v);
}

// 16-bit lanes L that saturate: finite values stay finite.
template <class L>
struct Within : L {
  template <class D>
  static hn::Vec<D> pulled_in(D d, hn::Vec<D> v) {
    return hn::IfThenElse(is_beyond(d, v, L::kOverflow), largest_like<L>(d, v), v);
  }
  template <class D>
  static void store(D d, hn::Vec<D> v, typename L::Stored* to) {
    L::store(d, pulled_in(d, v), to);
  }
};

// load_pair and store_pair transfer two vectors of elements at once, for operations that treat all
// elements alike. The assignment of elements to the vectors depends on the lanes, but is the same
// for load and store.
template <class L, class D, class V>
void load_pair(L, D d, const typename L::Stored* from, V& a, V& b) {
  a = L::load(d, from);
  b = L::load(d, from + hn::Lanes(d));
}
template <class L, class D, class V>
void store_pair(L, D d, V a, V b, typename L::Stored* to) {
  L::store(d, a, to);
  L::store(d, b, to + hn::Lanes(d));
}

// For bfloat16, even elements are the low halves of 32-bit lanes and odd elements the high halves,
// so no data crosses lanes.
template <class D, class V>
void load_pair(BFloat16AsFloat32, D d, const std::uint16_t* from, V& even, V& odd) {
  const hn::RebindToUnsigned<D> du;
  const auto both = hn::BitCast(du, hn::LoadU(hn::Repartition<std::uint16_t, D>(), from));
  even = hn::BitCast(d, hn::ShiftLeft<16>(both));
  odd = hn::BitCast(d, hn::And(both, hn::Set(du, 0xffff0000u)));
}
template <class D, class V>
void store_pair(BFloat16AsFloat32, D d, V even, V odd, std::uint16_t* to) {
  const hn::RebindToUnsigned<D> du;
  const hn::Repartition<std::uint16_t, D> halves;
  const auto low = hn::ShiftRight<16>(BFloat16AsFloat32::rounded(d, even));
  const auto high = hn::And(BFloat16AsFloat32::rounded(d, odd), hn::Set(du, 0xffff0000u));
  hn::StoreU(hn::BitCast(halves, hn::Or(low, high)), halves, to);
}

template <class L, class D, class V>
void load_pair(Within<L>, D d, const typename L::Stored* from, V& a, V& b) {
  load_pair(L(), d, from, a, b);
}
template <class L, class D, class V>
void store_pair(Within<L>, D d, V a, V b, typename L::Stored* to) {
  store_pair(L(), d, Within<L>::pulled_in(d, a), Within<L>::pulled_in(d, b), to);
}

// Replaces every NaN by the canonical NaN, because instruction sets differ in the operand whose NaN
// they return.
template <class D>
hn::Vec<D> canonical(D d, hn::Vec<D> v) {
  return hn::IfThenElse(hn::IsNaN(v), hn::Set(d, std::numeric_limits<hn::TFromD<D>>::quiet_NaN()),
                        v);
}

// The two methods of scaling; see `Scaling`.
struct Times {
  template <class V>
  static V apply(V v, V by) {
    return hn::Mul(v, by);
  }
};
struct Over {
  template <class V>
  static V apply(V v, V by) {
    return hn::Div(v, by);
  }
};

// Scales by `by` and makes NaN canonical. Integers are returned unchanged, because scaled integers
// have no vector kernel.
template <class By = Times, class D>
hn::Vec<D> finish(D d, hn::Vec<D> v, hn::Vec<D> by) {
  if constexpr (std::is_floating_point_v<hn::TFromD<D>>) {
    return canonical(d, By::apply(v, by));
  } else {
    return v;
  }
}

// Scales four vectors and makes NaN canonical, with one test for NaN: the sum of the vectors is NaN
// if one of them is. The sum is also NaN if infinities cancel, which costs only time.
template <class By = Times, class D, class V>
void finish(D d, V& a, V& b, V& c, V& e, hn::Vec<D> by) {
  if constexpr (std::is_floating_point_v<hn::TFromD<D>>) {
    a = By::apply(a, by);
    b = By::apply(b, by);
    c = By::apply(c, by);
    e = By::apply(e, by);
    const auto sum = hn::Add(hn::Add(a, b), hn::Add(c, e));
    if (HWY_LIKELY(hn::AllFalse(d, hn::IsNaN(sum)))) return;
    a = canonical(d, a);
    b = canonical(d, b);
    c = canonical(d, c);
    e = canonical(d, e);
  }
}

// The `apply` functions combine two vectors. Combinations of operation and type without such a
// function are computed by the reference kernels.
template <class V>
V apply(combine::Sum, V a, V b) {
  return hn::Add(a, b);
}

template <class V>
requires std::is_floating_point_v<hn::LaneType<V>> V apply(combine::Prod, V a, V b) {
  return hn::Mul(a, b);
}

// IEEE 754-2019 minimum and maximum. If neither operand is less, they are equal (zeros may differ
// in sign) or one is NaN. Their bitwise OR is then the equal value, -0 if either is -0, or a NaN.
template <class V>
V apply(combine::Min, V a, V b) {
  if constexpr (std::is_floating_point_v<hn::LaneType<V>>) {
    const auto not_less = hn::IfThenElse(hn::Lt(b, a), b, hn::Or(a, b));
    return hn::IfThenElse(hn::Lt(a, b), a, not_less);
  } else {
    return hn::Min(a, b);
  }
}

template <class V>
V apply(combine::Max, V a, V b) {
  if constexpr (std::is_floating_point_v<hn::LaneType<V>>) {
    return hn::Neg(apply(combine::Min(), hn::Neg(a), hn::Neg(b)));
  } else {
    return hn::Max(a, b);
  }
}

template <class V>
V apply(combine::BitAnd, V a, V b) {
  return hn::And(a, b);
}

template <class V>
V apply(combine::BitOr, V a, V b) {
  return hn::Or(a, b);
}

template <class V>
V apply(combine::BitXor, V a, V b) {
  return hn::Xor(a, b);
}

// Whether operation Op is defined on type T and has an `apply` function above.
template <class Op, typename T>
concept HasVectors = combine::Combines<Op, T> && requires(hn::Vec<hn::ScalableTag<T>> v) {
  apply(Op(), v, v);
};

}  // namespace HWY_NAMESPACE
}  // namespace kolo::simd
HWY_AFTER_NAMESPACE();

#endif  // toggling guard
