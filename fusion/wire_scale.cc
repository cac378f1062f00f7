#include "fusion/wire_scale.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "comm/base/half.h"
#include "comm/collective/wire_kernels.h"

namespace kolo {
namespace {

constexpr int kMostMagnitude = 15;  // Of a finite float16: its largest is below 2^16.
// A tensor may grow 64-fold from one step to the next.
constexpr int kRoomToGrow = 6;
// A contribution may be as many times its mean as there are ranks; beyond this it tells.
constexpr int kMostRoomForRanks = 8;
constexpr int kMoreRoom = 3;
constexpr int kMostRoom = 24;
// What became zero was below float16's least value, 2^-24: after this it is not too large.
constexpr int kStride = 24;

}  // namespace

WireScale::WireScale(int ranks)
    : room_(kRoomToGrow + std::min(kMostRoomForRanks, static_cast<int>(std::bit_width(
                                                          static_cast<unsigned>(ranks - 1))))) {}

void WireScale::step(const WireReport& report) {
  const int used = exponent_;
  if (report.was_too_large && was_settled_) room_ = std::min(room_ + kMoreRoom, kMostRoom);
  was_settled_ = is_settled_;
  if (report.largest >= kInfiniteFloat16.bits) return;
  int next = used;
  if (report.largest == kLargestFloat16.bits) {
    next = used - kStride;
    is_settled_ = false;
  } else if (report.largest > 0) {
    const int magnitude = std::ilogb(to_float(Float16{report.largest})) - used;
    const int wanted = kMostMagnitude - room_ - magnitude;
    next = is_settled_ ? std::min(wanted, used + 1) : wanted;
    is_settled_ = true;
  } else if (report.was_too_large) {
    next = used - kMoreRoom;  // Contributions cancel, and their size is not known.
  } else if (report.was_too_small) {
    next = used + kStride;
  }
  exponent_ = std::clamp(next, kLeastWireExponent, kMostWireExponent);
}

}  // namespace kolo
