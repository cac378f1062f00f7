#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>

#include "compression/kernels/fold_scan.h"

// Highway compiles everything up to HWY_ONCE once per instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compression/kernels/simd_fold_scan.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace kolo::simd {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128

// No vectors: the reference is as fast.
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

enum class Momentum { kNone, kPlain, kNesterov };

template <class D>
hn::Vec<D> canonical(D d, hn::Vec<D> v) {
  return hn::IfThenElse(hn::IsNaN(v), hn::Set(d, std::numeric_limits<float>::quiet_NaN()), v);
}

// Comes by `sums` of elements [i, i + lanes): from memory, or folded and stored.
template <Momentum kMomentum>
struct Folded {
  template <class D>
  static hn::Vec<D> sums(D d, const FoldScan& scan, std::size_t i) {
    const auto sum = canonical(d, hn::Add(hn::LoadU(d, scan.residual + i), update(d, scan, i)));
    hn::StoreU(sum, d, scan.sums + i);
    return sum;
  }
  template <class D>
  static hn::Vec<D> update(D d, const FoldScan& scan, std::size_t i) {
    const auto gradient = hn::Mul(hn::LoadU(d, scan.gradient + i), hn::Set(d, scan.scale));
    if constexpr (kMomentum == Momentum::kNone) {
      return gradient;
    } else {
      const auto factor = hn::Set(d, scan.momentum.factor);
      const auto before = hn::LoadU(d, scan.momentum.before + i);
      constexpr bool kNesterov = kMomentum == Momentum::kNesterov;
      const auto after = canonical(d, kNesterov ? hn::Mul(factor, hn::Add(before, gradient))
                                                : hn::Add(hn::Mul(factor, before), gradient));
      hn::StoreU(after, d, scan.momentum.after + i);
      return kNesterov ? hn::Add(after, gradient) : after;
    }
  }
};
struct Stored {
  template <class D>
  static hn::Vec<D> sums(D d, const FoldScan& scan, std::size_t i) {
    return hn::LoadU(d, scan.sums + i);
  }
};

// Keys of at least `least_key`. Keys are below 2^31, so that signed order is theirs.
template <class D>
hn::Mask<D> at_least(D d, hn::Vec<D> values, std::uint32_t least_key) {
  const hn::RebindToSigned<D> di;
  const auto keys = hn::And(hn::BitCast(di, values), hn::Set(di, 0x7fffffff));
  return hn::RebindMask(d, hn::Gt(keys, hn::Set(di, static_cast<std::int32_t>(least_key) - 1)));
}

// Elements that one word has a bit for.
constexpr std::size_t kGroup = 64;
// At densities that pay a group seldom has more candidates.
constexpr std::size_t kFew = 4;

// The lanes' bits, the first one lowest.
template <class D>
HWY_INLINE std::uint64_t bits_of(D d, hn::Mask<D> mask) {
  std::uint8_t bytes[8] = {};  // So many may be written.
  hn::StoreMaskBits(d, mask, bytes);
  std::uint16_t bits;
  std::memcpy(&bits, bytes, sizeof(bits));
  return bits;
}

// Appends the number of each bit that is set, counted from `first`, and returns the new number of
// indices. Which elements are candidates cannot be predicted, so that few of them take no branch:
// room for kFew is written in any case.
HWY_INLINE std::size_t append_bits(std::uint64_t word, std::size_t first, std::uint32_t* indices,
                                   std::size_t found) {
  constexpr std::uint64_t kLast = std::uint64_t{1} << (kGroup - 1);
  const auto append_lowest = [&](std::size_t j) {
    // A word that is never zero needs no case of its own.
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

// By value: stores of vectors may alias anything that has an address.
template <class Source>
std::size_t scan_all(const FoldScan scan, const Candidates out) {
  const hn::CappedTag<float, 16> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t found = 0;
  std::size_t i = scan.begin;
  for (; scan.end - i >= kGroup; i += kGroup) {
    std::uint64_t word = 0;
    for (std::size_t j = 0; j < kGroup; j += lanes) {
      const auto sums = Source::sums(d, scan, i + j);
      word |= bits_of(d, at_least(d, sums, scan.least_key)) << j;
    }
    found = append_bits(word, i, out.indices, found);
  }
  const hn::CappedTag<float, 1> one;
  for (; i < scan.end; ++i) {
    if (hn::AllFalse(one, at_least(one, Source::sums(one, scan, i), scan.least_key))) continue;
    out.indices[found++] = static_cast<std::uint32_t>(i);
  }
  for (std::size_t j = 0; j < found; ++j) out.values[j] = scan.sums[out.indices[j]];
  return found;
}

std::size_t fold_scan_on_target(const FoldScan& scan, const Candidates& out) {
  if (scan.momentum.before == nullptr) return scan_all<Folded<Momentum::kNone> >(scan, out);
  if (scan.momentum.nesterov) return scan_all<Folded<Momentum::kNesterov> >(scan, out);
  return scan_all<Folded<Momentum::kPlain> >(scan, out);
}

std::size_t rescan_on_target(const FoldScan& scan, const Candidates& out) {
  return scan_all<Stored>(scan, out);
}

// Appends the masked lanes and returns the new number of candidates. In registers, then with a
// plain store: the compress that stores is slow on some machines.
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
  // In place a vector never reaches behind what has been read, as kept <= i.
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
