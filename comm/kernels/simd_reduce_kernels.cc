#include "comm/kernels/simd_kernels.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>

#include "comm/base/visit_dtype.h"
#include "comm/kernels/combine.h"
#include "comm/kernels/scaling.h"

// Highway compiles this file up to HWY_ONCE once per instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "comm/kernels/simd_reduce_kernels.cc"
#include "hwy/foreach_target.h"
// Must follow foreach_target.h, which selects the instruction set.
#include "comm/kernels/simd_lanes-inl.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace kolo::simd {
namespace HWY_NAMESPACE {

using Outputs = std::span<void* const>;
using Sources = std::span<const void* const>;

const char* target_name() { return hwy::TargetName(HWY_TARGET); }

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128

// Without vector instructions, the reference kernel is as fast.
bool reduce_on_target(DType, ReduceOp, Outputs, Sources, std::size_t, double, Overflow, Stores) {
  return false;
}

#else

// Returns the address of element i of an array.
template <class L>
const typename L::Stored* at(const void* source, std::size_t i) {
  return static_cast<const typename L::Stored*>(source) + i;
}

template <class L>
typename L::Stored* at(void* output, std::size_t i) {
  return static_cast<typename L::Stored*>(output) + i;
}

// Stores four vectors at element i of every output.
template <class L, class D, class V, class To>
void store_everywhere(D d, V a, V b, V c, V e, const To& outputs, std::size_t i) {
  for (void* output : outputs) {
    store_pair(L(), d, a, b, at<L>(output, i));
    store_pair(L(), d, c, e, at<L>(output, i + 2 * hn::Lanes(d)));
  }
}

// Most sources that are read at once; more would collide in cache sets and prefetchers.
constexpr std::size_t kMaxStreams = 4;
// Elements of a block in reduce_blocks, whose partial sums stay in the L1 cache.
constexpr std::size_t kBlock = 1024;

// Combines elements [i, i + 4 * lanes) of the sources from index `first` on into four registers.
template <class L, class Op, class From, class D, class V>
void combine(D d, const From& sources, std::size_t first, std::size_t i, V& accum0, V& accum1,
             V& accum2, V& accum3) {
  for (std::size_t s = first; s < sources.size(); ++s) {
    V next0, next1, next2, next3;
    load_pair(L(), d, at<L>(sources[s], i), next0, next1);
    load_pair(L(), d, at<L>(sources[s], i + 2 * hn::Lanes(d)), next2, next3);
    accum0 = apply(Op(), accum0, next0);
    accum1 = apply(Op(), accum1, next1);
    accum2 = apply(Op(), accum2, next2);
    accum3 = apply(Op(), accum3, next3);
  }
}

// Reduces elements [i, count) in whole steps of 4 * lanes elements. Returns the index of the first
// remaining element. A step reads all inputs before it writes, so an output may be a source.
// Outputs and sources are spans of pointers, or std::arrays, whose pointers stay in registers.
template <class L, class Op, class By, class D, class To, class From>
std::size_t reduce_registers(D d, const To& outputs, const From& sources, std::size_t i,
                             std::size_t count, hn::Vec<D> scale) {
  const std::size_t lanes = hn::Lanes(d);
  for (; count - i >= 4 * lanes; i += 4 * lanes) {
    hn::Vec<D> accum0, accum1, accum2, accum3;
    load_pair(L(), d, at<L>(sources[0], i), accum0, accum1);
    load_pair(L(), d, at<L>(sources[0], i + 2 * lanes), accum2, accum3);
    combine<L, Op>(d, sources, 1, i, accum0, accum1, accum2, accum3);
    finish<By>(d, accum0, accum1, accum2, accum3, scale);
    store_everywhere<L>(d, accum0, accum1, accum2, accum3, outputs, i);
  }
  return i;
}

// Reduces elements [i, count) of any number of sources in whole blocks of kBlock elements. Reads
// kMaxStreams sources at a time; unrounded partial sums stay in L1. Returns the index of the first
// remaining element.
template <class L, class Op, class By, class D>
std::size_t reduce_blocks(D d, Outputs outputs, Sources sources, std::size_t i, std::size_t count,
                          hn::Vec<D> scale) {
  const std::size_t lanes = hn::Lanes(d);
  HWY_ALIGN typename L::Accum partial[kBlock];
  for (; count - i >= kBlock; i += kBlock) {
    for (std::size_t s = 0; s < sources.size(); s += kMaxStreams) {
      const auto group = sources.subspan(s, std::min(kMaxStreams, sources.size() - s));
      for (std::size_t k = 0; k < kBlock; k += 4 * lanes) {
        hn::Vec<D> accum0, accum1, accum2, accum3;
        if (s == 0) {
          load_pair(L(), d, at<L>(sources[0], i + k), accum0, accum1);
          load_pair(L(), d, at<L>(sources[0], i + k + 2 * lanes), accum2, accum3);
        } else {
          accum0 = hn::Load(d, partial + k);
          accum1 = hn::Load(d, partial + k + lanes);
          accum2 = hn::Load(d, partial + k + 2 * lanes);
          accum3 = hn::Load(d, partial + k + 3 * lanes);
        }
        combine<L, Op>(d, group, s == 0 ? 1 : 0, i + k, accum0, accum1, accum2, accum3);
        hn::Store(accum0, d, partial + k);
        hn::Store(accum1, d, partial + k + lanes);
        hn::Store(accum2, d, partial + k + 2 * lanes);
        hn::Store(accum3, d, partial + k + 3 * lanes);
      }
    }
    for (std::size_t k = 0; k < kBlock; k += 4 * lanes) {
      auto accum0 = hn::Load(d, partial + k);
      auto accum1 = hn::Load(d, partial + k + lanes);
      auto accum2 = hn::Load(d, partial + k + 2 * lanes);
      auto accum3 = hn::Load(d, partial + k + 3 * lanes);
      finish<By>(d, accum0, accum1, accum2, accum3, scale);
      store_everywhere<L>(d, accum0, accum1, accum2, accum3, outputs, i + k);
    }
  }
  return i;
}

// Reduces elements [i, count) one by one.
template <class L, class Op, class By>
void reduce_singly(Outputs outputs, Sources sources, std::size_t i, std::size_t count,
                   typename L::Accum scale) {
  const hn::CappedTag<typename L::Accum, 1> one;
  for (; i < count; ++i) {
    auto accum = L::load(one, at<L>(sources[0], i));
    for (const void* source : sources.subspan(1)) {
      accum = apply(Op(), accum, L::load(one, at<L>(source, i)));
    }
    const auto result = finish<By>(one, accum, hn::Set(one, scale));
    for (void* output : outputs) L::store(one, result, at<L>(output, i));
  }
}

// Reduces elements [i, count) in whole steps. Returns the index of the first remaining element.
template <class L, class Op, class By>
std::size_t reduce_steps(Outputs outputs, Sources sources, std::size_t i, std::size_t count,
                         typename L::Accum factor) {
  const hn::ScalableTag<typename L::Accum> d;
  if (sources.size() > kMaxStreams) {
    i = reduce_blocks<L, Op, By>(d, outputs, sources, i, count, hn::Set(d, factor));
  }
  if (sources.size() == 2 && outputs.size() <= 2) {
    const std::array<const void*, 2> from = {sources[0], sources[1]};
    if (outputs.size() == 1) {
      const std::array<void*, 1> to = {outputs[0]};
      return reduce_registers<L, Op, By>(d, to, from, i, count, hn::Set(d, factor));
    }
    const std::array<void*, 2> to = {outputs[0], outputs[1]};
    return reduce_registers<L, Op, By>(d, to, from, i, count, hn::Set(d, factor));
  }
  return reduce_registers<L, Op, By>(d, outputs, sources, i, count, hn::Set(d, factor));
}

// Whether streaming stores pay and are possible: the array is long, no output is a source (its
// lines are in the cache), and all outputs have the same alignment.
template <class L>
bool can_stream(Outputs outputs, Sources sources, std::size_t count) {
  if (count * sizeof(typename L::Stored) < kLeastStreamBytes) return false;
  const hn::ScalableTag<typename L::Accum> d;
  const auto offset = [&](const void* output) {
    return reinterpret_cast<std::uintptr_t>(output) % (hn::Lanes(d) * sizeof(typename L::Stored));
  };
  return offset(outputs[0]) % sizeof(typename L::Stored) == 0 &&
         std::ranges::all_of(outputs, [&](const void* output) {
           return offset(output) == offset(outputs[0]) &&
                  std::ranges::find(sources, output) == sources.end();
         });
}

template <class L, class Op, class By>
void reduce_by(Outputs outputs, Sources sources, std::size_t count, typename L::Accum factor,
               Stores stores) {
  std::size_t i = 0;
  if constexpr (std::is_same_v<Op, combine::Sum> && std::is_same_v<L, Plain<typename L::Accum> >) {
    if (stores == Stores::kStreaming && can_stream<L>(outputs, sources, count)) {
      i = misaligned_elements(hn::ScalableTag<typename L::Accum>(), at<L>(outputs[0], 0));
      reduce_singly<L, Op, By>(outputs, sources, 0, i, factor);
      i = reduce_steps<PastCache<L>, Op, By>(outputs, sources, i, count, factor);
      hwy::FlushStream();
    }
  }
  i = reduce_steps<L, Op, By>(outputs, sources, i, count, factor);
  reduce_singly<L, Op, By>(outputs, sources, i, count, factor);
}

template <class L, class Op>
bool reduce_lanes(Outputs outputs, Sources sources, std::size_t count, double scale,
                  Stores stores) {
  const Scaling scaling = scale;
  const auto operand = static_cast<typename L::Accum>(scaling.operand());
  if (!scaling.divides()) {
    reduce_by<L, Op, Times>(outputs, sources, count, operand, stores);
    return true;
  }
  // Only sums of floats are divided often (averages).
  constexpr bool kIsFloat = std::is_floating_point_v<typename L::Accum>;
  if constexpr (std::is_same_v<Op, combine::Sum> && kIsFloat) {
    reduce_by<L, Op, Over>(outputs, sources, count, operand, stores);
    return true;
  }
  return false;
}

template <class L>
bool reduce_float(ReduceOp op, Outputs outputs, Sources sources, std::size_t count, double scale,
                  Stores stores) {
  return combine::visit_op(op, [&]<class Op>(Op) {
    if constexpr (HasVectors<Op, typename L::Accum>) {
      return reduce_lanes<L, Op>(outputs, sources, count, scale, stores);
    } else {
      return false;
    }
  });
}

// Bitwise operations use bytes, whatever T is. Sums wrap, so signed types use the unsigned kernel.
template <typename T>
bool reduce_integer(ReduceOp op, Outputs outputs, Sources sources, std::size_t count, double scale,
                    Stores stores) {
  if (scale != 1.0) return false;
  return combine::visit_op(op, [&]<class Op>(Op) {
    if constexpr (std::is_base_of_v<combine::OfBits, Op> && HasVectors<Op, std::uint8_t>) {
      return reduce_lanes<Plain<std::uint8_t>, Op>(outputs, sources, count * sizeof(T), scale,
                                                   stores);
    } else if constexpr (HasVectors<Op, T>) {
      using Lane = std::conditional_t<std::is_same_v<Op, combine::Sum>, std::make_unsigned_t<T>, T>;
      return reduce_lanes<Plain<Lane>, Op>(outputs, sources, count, scale, stores);
    } else {
      return false;
    }
  });
}

// Reduces 16-bit floats, which overflow to infinity or saturate.
template <class L>
bool reduce_half(ReduceOp op, Outputs outputs, Sources sources, std::size_t count, double scale,
                 Overflow overflow, Stores stores) {
  if (overflow == Overflow::kLargest) {
    return reduce_float<Within<L> >(op, outputs, sources, count, scale, stores);
  }
  return reduce_float<L>(op, outputs, sources, count, scale, stores);
}

bool reduce_on_target(DType dtype, ReduceOp op, Outputs outputs, Sources sources, std::size_t count,
                      double scale, Overflow overflow, Stores stores) {
  return visit_dtype(dtype, [&]<typename T>(std::type_identity<T>) {
    if constexpr (std::is_integral_v<T>) {
      return reduce_integer<T>(op, outputs, sources, count, scale, stores);
    } else if constexpr (std::is_same_v<T, Float16>) {
      return reduce_half<Float16AsFloat32>(op, outputs, sources, count, scale, overflow, stores);
    } else if constexpr (std::is_same_v<T, BFloat16>) {
      return reduce_half<BFloat16AsFloat32>(op, outputs, sources, count, scale, overflow, stores);
    } else {
      return reduce_float<Plain<T> >(op, outputs, sources, count, scale, stores);
    }
  });
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace kolo::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kolo::simd {

HWY_EXPORT(reduce_on_target);
HWY_EXPORT(target_name);

bool reduce(DType dtype, ReduceOp op, std::span<void* const> outputs,
            std::span<const void* const> sources, std::size_t count, double scale,
            Overflow overflow, Stores stores) {
  return HWY_DYNAMIC_DISPATCH(reduce_on_target)(dtype, op, outputs, sources, count, scale, overflow,
                                                stores);
}

const char* target() { return HWY_DYNAMIC_DISPATCH(target_name)(); }

}  // namespace kolo::simd
#endif
