// Loops that the kernels of this folder share. Highway's foreach_target mechanism includes this
// file once per instruction set, so the include guard toggles.

#if defined(KOLO_TRAINER_KERNELS_FOR_EACH_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef KOLO_TRAINER_KERNELS_FOR_EACH_INL_H
#undef KOLO_TRAINER_KERNELS_FOR_EACH_INL_H
#else
#define KOLO_TRAINER_KERNELS_FOR_EACH_INL_H
#endif

#include <cstddef>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace kolo::trainer {
namespace HWY_NAMESPACE {

using FullTag = hwy::HWY_NAMESPACE::ScalableTag<float>;
using OneTag = hwy::HWY_NAMESPACE::CappedTag<float, 1>;

/// Calls `body(tag, i)` for i = 0, lanes, 2·lanes, … with a tag of all lanes, then for each
/// remaining element with a tag of one lane.
template <typename Body>
HWY_INLINE void for_each(std::size_t count, const Body& body) {
  const FullTag full;
  const std::size_t lanes = hwy::HWY_NAMESPACE::Lanes(full);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) body(full, i);
  for (; i < count; ++i) body(OneTag(), i);
}

/// The sum of `term(tag, i)` over i in [0, count), in a fixed order, with tags as in `for_each`.
template <typename Term>
HWY_INLINE float sum_over(std::size_t count, const Term& term) {
  namespace hn = hwy::HWY_NAMESPACE;
  const FullTag full;
  const std::size_t lanes = hn::Lanes(full);
  auto even = hn::Zero(full);
  auto odd = hn::Zero(full);
  std::size_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    even = hn::Add(even, term(full, i));
    odd = hn::Add(odd, term(full, i + lanes));
  }
  if (i + lanes <= count) {
    even = hn::Add(even, term(full, i));
    i += lanes;
  }
  float sum = hn::GetLane(hn::SumOfLanes(full, hn::Add(even, odd)));
  for (; i < count; ++i) sum += hn::GetLane(term(OneTag(), i));
  return sum;
}

/// The largest of `count` values. Before: count > 0.
HWY_INLINE float largest(const float* values, std::size_t count) {
  namespace hn = hwy::HWY_NAMESPACE;
  const FullTag full;
  const std::size_t lanes = hn::Lanes(full);
  float result = values[0];
  std::size_t i = 0;
  if (count >= lanes) {
    auto best = hn::LoadU(full, values);
    for (i = lanes; i + lanes <= count; i += lanes) {
      best = hn::Max(best, hn::LoadU(full, values + i));
    }
    result = hn::GetLane(hn::MaxOfLanes(full, best));
  }
  for (; i < count; ++i) result = values[i] > result ? values[i] : result;
  return result;
}

}  // namespace HWY_NAMESPACE
}  // namespace kolo::trainer
HWY_AFTER_NAMESPACE();

#endif
