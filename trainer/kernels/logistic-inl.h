// The logistic function, for kernels of several activation functions. Included once per instruction
// set by Highway's foreach_target mechanism, hence the include guard that toggles.

#if defined(KOLO_TRAINER_KERNELS_LOGISTIC_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef KOLO_TRAINER_KERNELS_LOGISTIC_INL_H
#undef KOLO_TRAINER_KERNELS_LOGISTIC_INL_H
#else
#define KOLO_TRAINER_KERNELS_LOGISTIC_INL_H
#endif

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace kolo::trainer {
namespace HWY_NAMESPACE {

/// 1 / (1 + exp(-v)).
template <class D, class V>
HWY_INLINE V Logistic(D d, V v) {
  namespace hn = hwy::HWY_NAMESPACE;
  const auto one = hn::Set(d, 1.0f);
  // Below -80 the result is 0 to the last bit of fp32; clamping keeps exp from overflowing.
  const auto exponent = hn::Neg(hn::Max(v, hn::Set(d, -80.0f)));
  return hn::Div(one, hn::Add(one, hn::Exp(d, exponent)));
}

}  // namespace HWY_NAMESPACE
}  // namespace kolo::trainer
HWY_AFTER_NAMESPACE();

#endif
