#include "compression/kernels/fold_scan.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "compression/kernels/nth_key.h"

// Enables the AVX-512 target of newer machines, which can compress bytes; Highway compiles for it
// only on request. Builds without inlining do not enable it: Highway's inline functions hold the
// list of targets, and the linker would keep one copy of them, with this list, also for sources
// with a shorter list.
#if defined(__OPTIMIZE__)
#define HWY_WANT_AVX3_DL
#endif
// Highway compiles everything up to HWY_ONCE once per instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compression/kernels/fold_scan.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace kolo::simd {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128

// Without vectors, the reference is as fast.
std::size_t fold_scan_on_target(const FoldScan& scan, const Candidates& out) {
  return reference::fold_scan(scan, out);
}
std::size_t rescan_on_target(const FoldScan& scan, const Candidates& out) {
  return reference::rescan(scan, out);
}
std::size_t keep_on_target(const Candidates& from, std::size_t count, std::uint32_t least_key,
                           const Candidates& to, std::size_t room) {
  return reference::keep_candidates(from, count, least_key, to, room);
}

#else

// Provides `sums` of elements [i, i + lanes): either loaded from memory, or folded and stored. NaNs
// are not canonical yet.
template <bool kHasMomentum>
struct Folded {
  template <class D>
  static hn::Vec<D> sums(D d, const FoldScan& scan, std::size_t i) {
    const auto sum = hn::Add(hn::LoadU(d, scan.residual + i), update(d, scan, i));
    hn::StoreU(sum, d, scan.sums + i);
    return sum;
  }
  template <class D>
  static hn::Vec<D> update(D d, const FoldScan& scan, std::size_t i) {
    const auto gradient = hn::Mul(hn::LoadU(d, scan.gradient + i), hn::Set(d, scan.scale));
    if constexpr (!kHasMomentum) {
      return gradient;
    } else {
      const auto factor = hn::Set(d, scan.momentum.factor);
      const auto before = hn::LoadU(d, scan.momentum.before + i);
      const auto after = hn::Add(hn::Mul(factor, before), gradient);
      hn::StoreU(after, d, scan.momentum.after + i);
      return after;
    }
  }
  // Replaces the NaN sum of element i by the canonical NaN.
  static void repair(const FoldScan& scan, std::size_t i) {
    scan.sums[i] = radix::canonical(scan.sums[i]);
    if constexpr (kHasMomentum) {
      scan.momentum.after[i] = radix::canonical(scan.momentum.after[i]);
    }
  }
};
struct Stored {
  template <class D>
  static hn::Vec<D> sums(D d, const FoldScan& scan, std::size_t i) {
    return hn::LoadU(d, scan.sums + i);
  }
  static void repair(const FoldScan&, std::size_t) {}
};

// Tests which keys are at least `least_key`. Signed comparison orders keys, which are below 2^31.
template <class D>
hn::Mask<D> at_least(D d, hn::Vec<D> values, std::uint32_t least_key) {
  const hn::RebindToSigned<D> di;
  const auto keys = hn::And(hn::BitCast(di, values), hn::Set(di, 0x7fffffff));
  return hn::RebindMask(d, hn::Gt(keys, hn::Set(di, static_cast<std::int32_t>(least_key) - 1)));
}

// Number of elements for which one word has a bit.
constexpr std::size_t kGroup = 64;

// Returns the bits of all lanes; the first lane is the lowest bit.
template <class D>
HWY_INLINE std::uint64_t bits_of(D d, hn::Mask<D> mask) {
  std::uint8_t bytes[8] = {};  // the store may write 8 bytes
  hn::StoreMaskBits(d, mask, bytes);
  std::uint16_t bits;
  std::memcpy(&bits, bytes, sizeof(bits));
  return bits;
}

// Appends the index of each set bit, counted from `first`, and returns the new number of indices.
// To avoid mispredicted branches, kFew indices are always written.
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3_DL
HWY_INLINE std::size_t append_bits(std::uint64_t word, std::size_t first, std::uint32_t* indices,
                                   std::size_t found) {
  constexpr std::size_t kFew = 8;
  const hn::CappedTag<std::uint8_t, kGroup> bytes;
  const hn::CappedTag<std::uint8_t, kFew> few;
  const hn::CappedTag<std::uint32_t, kFew> d;
  std::uint8_t bits[sizeof(word)];
  std::memcpy(bits, &word, sizeof(word));
  HWY_ALIGN std::uint8_t numbers[kGroup];
  const auto kept = hn::Compress(hn::Iota(bytes, 0), hn::LoadMaskBits(bytes, bits));
  const auto base = hn::Set(d, static_cast<std::uint32_t>(first));
  const hn::Vec<decltype(few)> lowest{_mm512_castsi512_si128(kept.raw)};
  hn::StoreU(hn::Add(base, hn::PromoteTo(d, lowest)), d, indices + found);
  const auto count = static_cast<std::size_t>(std::popcount(word));
  if (HWY_UNLIKELY(count > kFew)) {
    hn::Store(kept, bytes, numbers);
    for (std::size_t j = kFew; j < count; j += kFew) {
      const auto next = hn::PromoteTo(d, hn::Load(few, numbers + j));
      hn::StoreU(hn::Add(base, next), d, indices + found + j);
    }
  }
  return found + count;
}
#else
HWY_INLINE std::size_t append_bits(std::uint64_t word, std::size_t first, std::uint32_t* indices,
                                   std::size_t found) {
  // At useful densities, a group seldom has more candidates.
  constexpr std::size_t kFew = 4;
  constexpr std::uint64_t kLast = std::uint64_t{1} << (kGroup - 1);
  const auto append_lowest = [&](std::size_t j) {
    // The set bit avoids a special case for zero.
    const auto number = static_cast<std::uint32_t>(std::countr_zero(word | kLast));
    indices[found + j] = static_cast<std::uint32_t>(first) + number;
    word &= word - 1;
  };
  const auto count = static_cast<std::size_t>(std::popcount(word));
  for (std::size_t j = 0; j < kFew; ++j) append_lowest(j);
  if (HWY_UNLIKELY(count > kFew)) {
    for (std::size_t j = kFew; j < count; ++j) append_lowest(j);
  }
  return found + count;
}
#endif

// Reads the sums of the candidates. Returns their largest key.
HWY_INLINE std::uint32_t read_back(const float* sums, const Candidates& out, std::size_t found) {
  std::uint32_t largest = 0;
  for (std::size_t j = 0; j < found; ++j) {
    const float value = sums[out.indices[j]];
    out.values[j] = value;
    largest = std::max(largest, radix::key_of(value));
  }
  return largest;
}

// Arguments are passed by value, because vector stores may alias anything that has an address. The
// function is inlined, so that fields are copied one by one: a vector load of fields that were just
// written would wait for all earlier stores.
template <class Source>
HWY_INLINE std::size_t scan_all(const FoldScan scan, const Candidates out) {
  // A NaN sum becomes the canonical NaN. It is always among the candidates: any NaN here is quiet,
  // so its key is at least `kNaNKey`.
  constexpr std::uint32_t kNaNKey = 0x7fc00000u;
  const std::uint32_t least_key = std::min(scan.least_key, kNaNKey);
  const hn::CappedTag<float, 16> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t found = 0;
  std::size_t i = scan.begin;
  for (; scan.end - i >= kGroup; i += kGroup) {
    std::uint64_t word = 0;
    for (std::size_t j = 0; j < kGroup; j += lanes) {
      const auto sums = Source::sums(d, scan, i + j);
      word |= bits_of(d, at_least(d, sums, least_key)) << j;
    }
    found = append_bits(word, i, out.indices, found);
  }
  const hn::CappedTag<float, 1> one;
  for (; i < scan.end; ++i) {
    if (hn::AllFalse(one, at_least(one, Source::sums(one, scan, i), least_key))) continue;
    out.indices[found++] = static_cast<std::uint32_t>(i);
  }
  if (HWY_UNLIKELY(read_back(scan.sums, out, found) >= kNaNKey)) {
    for (std::size_t j = 0; j < found; ++j) {
      if (out.values[j] == out.values[j]) continue;
      Source::repair(scan, out.indices[j]);
      out.values[j] = scan.sums[out.indices[j]];
    }
  }
  return scan.least_key > kNaNKey ? 0 : found;
}

std::size_t fold_scan_on_target(const FoldScan& scan, const Candidates& out) {
  if (scan.momentum.before == nullptr) return scan_all<Folded<false> >(scan, out);
  return scan_all<Folded<true> >(scan, out);
}

std::size_t rescan_on_target(const FoldScan& scan, const Candidates& out) {
  return scan_all<Stored>(scan, out);
}

// Appends the masked lanes and returns the new number of candidates. Compresses in registers and
// then uses a plain store, because a compressing store is slow on some machines.
template <class D>
std::size_t append(D d, hn::Mask<D> mask, hn::Vec<hn::RebindToUnsigned<D> > indices,
                   hn::Vec<D> values, const Candidates& out, std::size_t found) {
  const hn::RebindToUnsigned<D> du;
  hn::StoreU(hn::Compress(indices, hn::RebindMask(du, mask)), du, out.indices + found);
  hn::StoreU(hn::Compress(values, mask), d, out.values + found);
  return found + hn::CountTrue(d, mask);
}

std::size_t keep_on_target(const Candidates& from, std::size_t count, std::uint32_t least_key,
                           const Candidates& to, std::size_t room) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t kept = 0;
  std::size_t i = 0;
  // In place, a store never overwrites elements that are not read yet, because kept <= i.
  for (; count - i >= lanes && room - kept >= lanes; i += lanes) {
    const auto values = hn::LoadU(d, from.values + i);
    const auto indices = hn::LoadU(du, from.indices + i);
    kept = append(d, at_least(d, values, least_key), indices, values, to, kept);
  }
  const Candidates rest{.indices = from.indices + i, .values = from.values + i};
  const Candidates end{.indices = to.indices + kept, .values = to.values + kept};
  return kept + reference::keep_candidates(rest, count - i, least_key, end, room - kept);
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace kolo::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kolo {
namespace reference {

std::size_t fold_scan(const FoldScan& scan, const Candidates& out) {
  for (std::size_t i = scan.begin; i < scan.end; ++i) {
    float update = scan.scale * scan.gradient[i];
    if (const FoldMomentum& momentum = scan.momentum; momentum.before != nullptr) {
      update = radix::accumulate(momentum.factor * momentum.before[i], update);
      momentum.after[i] = update;
    }
    scan.sums[i] = radix::accumulate(scan.residual[i], update);
  }
  return reference::rescan(scan, out);
}

std::size_t rescan(const FoldScan& scan, const Candidates& out) {
  std::size_t found = 0;
  for (std::size_t i = scan.begin; i < scan.end; ++i) {
    if (radix::key_of(scan.sums[i]) < scan.least_key) continue;
    out.indices[found] = static_cast<std::uint32_t>(i);
    out.values[found] = scan.sums[i];
    ++found;
  }
  return found;
}

std::size_t keep_candidates(const Candidates& from, std::size_t count, std::uint32_t least_key,
                            const Candidates& to, std::size_t) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (radix::key_of(from.values[i]) < least_key) continue;
    to.indices[kept] = from.indices[i];
    to.values[kept] = from.values[i];
    ++kept;
  }
  return kept;
}

}  // namespace reference

namespace simd {
HWY_EXPORT(fold_scan_on_target);
HWY_EXPORT(rescan_on_target);
HWY_EXPORT(keep_on_target);
}  // namespace simd

std::size_t fold_scan(const FoldScan& scan, const Candidates& out) {
  using namespace simd;
  return HWY_DYNAMIC_DISPATCH(fold_scan_on_target)(scan, out);
}

std::size_t rescan(const FoldScan& scan, const Candidates& out) {
  using namespace simd;
  return HWY_DYNAMIC_DISPATCH(rescan_on_target)(scan, out);
}

std::size_t keep_candidates(const Candidates& from, std::size_t count, std::uint32_t least_key,
                            const Candidates& to, std::size_t room) {
  using namespace simd;
  return HWY_DYNAMIC_DISPATCH(keep_on_target)(from, count, least_key, to, room);
}

}  // namespace kolo
#endif
