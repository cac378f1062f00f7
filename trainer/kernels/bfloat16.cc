#include "trainer/kernels/bfloat16.h"

#include <cstddef>
#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trainer/kernels/bfloat16.cc"
#include <hwy/foreach_target.h>  // must precede highway.h

#include <hwy/highway.h>

#include "trainer/kernels/for_each-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kolo::trainer {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The lower half of a float32 is added to itself up to a carry into the upper half, as in
// comm/base/half.h.
void RoundToBFloat16(const float* values, std::size_t count, std::uint16_t* out) {
  for_each(count, [=](auto d, std::size_t i) HWY_ATTR {
    const hn::RebindToUnsigned<decltype(d)> bits_tag;
    const hn::RebindToSigned<decltype(d)> signed_tag;
    const hn::Rebind<std::uint16_t, decltype(d)> half_tag;
    const auto value = hn::LoadU(d, values + i);
    const auto bits = hn::BitCast(bits_tag, value);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(bits_tag, 1));
    const auto carried = hn::Add(hn::Add(bits, hn::Set(bits_tag, 0x7fff)), odd);
    const auto is_nan = hn::RebindMask(bits_tag, hn::IsNaN(value));
    const auto rounded =
        hn::IfThenElse(is_nan, hn::Set(bits_tag, 0x7fc0), hn::ShiftRight<16>(carried));
    hn::StoreU(hn::DemoteTo(half_tag, hn::BitCast(signed_tag, rounded)), half_tag, out + i);
  });
}

void Widen(const std::uint16_t* values, std::size_t count, float* out) {
  for_each(count, [=](auto d, std::size_t i) HWY_ATTR {
    const hn::RebindToUnsigned<decltype(d)> bits_tag;
    const hn::Rebind<std::uint16_t, decltype(d)> half_tag;
    const auto bits = hn::PromoteTo(bits_tag, hn::LoadU(half_tag, values + i));
    hn::StoreU(hn::BitCast(d, hn::ShiftLeft<16>(bits)), d, out + i);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace kolo::trainer
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kolo::trainer {

HWY_EXPORT(RoundToBFloat16);
HWY_EXPORT(Widen);

void round_to_bfloat16(std::span<const float> values, std::span<BFloat16> out) {
  HWY_DYNAMIC_DISPATCH(RoundToBFloat16)
  (values.data(), values.size(), reinterpret_cast<std::uint16_t*>(out.data()));
}

void widen(std::span<const BFloat16> values, std::span<float> out) {
  HWY_DYNAMIC_DISPATCH(Widen)
  (reinterpret_cast<const std::uint16_t*>(values.data()), values.size(), out.data());
}

}  // namespace kolo::trainer
#endif
