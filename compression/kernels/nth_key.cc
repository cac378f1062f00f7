#include "compression/kernels/nth_key.h"

#include <algorithm>

// Highway compiles everything up to HWY_ONCE once per instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compression/kernels/nth_key.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace kolo::radix {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// These functions are inlined explicitly: compilers do not inline functions that a shared library
// may replace.

// Keys are below 2^31, so a signed comparison orders them. The slack is a multiple of four vectors.
using Keys = hn::CappedTag<std::int32_t, kKeySlack / 4>;

// Pads `keys` with zeros to a multiple of the slack and returns the padded count. Zeros are never
// counted, because the middle of a range is never zero.
HWY_INLINE std::size_t padded(std::uint32_t* keys, std::size_t count) {
  const std::size_t end = (count + kKeySlack - 1) / kKeySlack * kKeySlack;
  std::fill(keys + count, keys + end, 0u);
  return end;
}

HWY_INLINE const std::int32_t* as_signed(const std::uint32_t* keys) {
  return reinterpret_cast<const std::int32_t*>(keys);
}

// Returns a bound: a key is greater than the bound exactly if it is at least `least`.
HWY_INLINE hn::Vec<Keys> just_below(std::uint32_t least) {
  return hn::Set(Keys(), static_cast<std::int32_t>(least - 1));
}

// Writes the keys of `values` to `keys`. Returns the largest key.
HWY_INLINE std::uint32_t write_keys(std::span<const float> values, std::uint32_t* keys) {
  const Keys d;
  const hn::Rebind<float, Keys> df;
  auto largest = hn::Zero(d);
  std::size_t i = 0;
  for (; values.size() - i >= hn::Lanes(d); i += hn::Lanes(d)) {
    const auto key = hn::BitCast(d, hn::Abs(hn::LoadU(df, values.data() + i)));
    largest = hn::Max(largest, key);
    hn::StoreU(hn::BitCast(hn::RebindToUnsigned<Keys>(), key), hn::RebindToUnsigned<Keys>(),
               keys + i);
  }
  auto result = static_cast<std::uint32_t>(hn::GetLane(hn::MaxOfLanes(d, largest)));
  for (; i < values.size(); ++i) {
    keys[i] = key_of(values[i]);
    result = std::max(result, keys[i]);
  }
  return result;
}

HWY_INLINE std::size_t count_at_least(const std::uint32_t* keys, std::size_t count,
                                      std::uint32_t least) {
  const Keys d;
  const std::size_t lanes = hn::Lanes(d);
  const auto below = just_below(least);
  auto count0 = hn::Zero(d), count1 = hn::Zero(d), count2 = hn::Zero(d), count3 = hn::Zero(d);
  const auto one_if_above = [=](std::size_t i) HWY_ATTR {
    return hn::VecFromMask(d, hn::Gt(hn::LoadU(d, as_signed(keys) + i), below));  // -1 per such key
  };
  for (std::size_t i = 0; i < count; i += 4 * lanes) {
    count0 = hn::Sub(count0, one_if_above(i));
    count1 = hn::Sub(count1, one_if_above(i + lanes));
    count2 = hn::Sub(count2, one_if_above(i + 2 * lanes));
    count3 = hn::Sub(count3, one_if_above(i + 3 * lanes));
  }
  const auto sum = hn::Add(hn::Add(count0, count1), hn::Add(count2, count3));
  return static_cast<std::size_t>(hn::GetLane(hn::SumOfLanes(d, sum)));
}

// Keeps the keys in [least, end) in any order. Returns their number.
HWY_INLINE std::size_t keep_range(std::uint32_t* keys, std::size_t count, std::uint32_t least,
                                  std::uint32_t end) {
  const Keys d;
  const hn::RebindToUnsigned<Keys> du;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < count; i += hn::Lanes(d)) {
    const auto key = hn::LoadU(d, as_signed(keys) + i);
    const auto mask = hn::AndNot(hn::Gt(key, just_below(end)), hn::Gt(key, just_below(least)));
    // A store never overwrites keys that are not read yet, because kept <= i.
    hn::StoreU(hn::BitCast(du, hn::Compress(key, mask)), du, keys + kept);
    kept += hn::CountTrue(d, mask);
  }
  return kept;
}

HWY_INLINE std::uint32_t largest_below(const std::uint32_t* keys, std::size_t count,
                                       std::uint32_t end) {
  const Keys d;
  auto largest = hn::Zero(d);
  for (std::size_t i = 0; i < count; i += hn::Lanes(d)) {
    const auto key = hn::LoadU(d, as_signed(keys) + i);
    largest = hn::Max(largest, hn::IfThenZeroElse(hn::Gt(key, just_below(end)), key));
  }
  return static_cast<std::uint32_t>(hn::GetLane(hn::MaxOfLanes(d, largest)));
}

NthKey nth_key_on_target(std::span<const float> values, std::size_t k, std::uint32_t floor,
                         std::uint32_t* keys) {
  // Removing keys costs more than counting, so it must save several counts.
  constexpr std::size_t kShrink = 4;
  constexpr std::size_t kFew = 512;
  const std::uint32_t largest = write_keys(values, keys);
  std::uint32_t least = floor;
  std::uint32_t end = largest + 1;
  std::size_t inside = values.size();  // keys in [least, end); one of them is the result
  std::size_t above = 0;               // keys of at least `end`
  std::size_t dropped_above = 0;       // keys of `above` that are no longer in memory
  std::size_t held = padded(keys, inside);
  while (inside > 1 && end - least > 1) {
    const std::uint32_t middle = least + (end - least) / 2;
    const std::size_t upper = count_at_least(keys, held, middle) - (above - dropped_above);
    if (above + upper >= k) {
      least = middle;
      inside = upper;
    } else {
      end = middle;
      inside -= upper;
      above += upper;
    }
    if (held > kFew && inside <= held / kShrink) {
      held = padded(keys, keep_range(keys, held, least, end));
      dropped_above = above;
    }
  }
  return {.key = inside == 1 ? largest_below(keys, held, end) : least,
          .need = k - above,
          .equal = inside,
          .largest = largest};
}

}  // namespace HWY_NAMESPACE
}  // namespace kolo::radix
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kolo::radix {

HWY_EXPORT(nth_key_on_target);

NthKey nth_largest_key(std::span<const float> values, std::size_t k, std::uint32_t floor,
                       std::vector<std::uint32_t>& keys) {
  if (keys.size() < values.size() + kKeySlack) keys.resize(values.size() + kKeySlack);
  return HWY_DYNAMIC_DISPATCH(nth_key_on_target)(values, k, floor, keys.data());
}

}  // namespace kolo::radix
#endif
