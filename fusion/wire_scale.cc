#include "fusion/wire_scale.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "comm/base/check.h"
#include "comm/base/half.h"
#include "comm/kernels/reduce_kernels.h"

namespace kolo {
namespace {

constexpr int kMostMagnitude = 15;  // exponent of the largest finite float16, which is below 2^16
// Allows a tensor to grow 64-fold from one step to the next.
constexpr int kRoomToGrow = 6;
// A contribution may exceed the mean by a factor of the number of ranks, limited to 2^8 here; ranks
// report larger values.
constexpr int kMostRoomForRanks = 8;
constexpr int kMoreRoom = 3;
constexpr int kMostRoom = 24;
// Values that became zero were below 2^-24, the smallest float16. Raising the exponent by this
// number makes none of them too large.
constexpr int kStride = 24;

}  // namespace

WireScale::WireScale(int ranks)
    : memory_{.room =
                  kRoomToGrow +
                  std::min(kMostRoomForRanks,
                           static_cast<int>(std::bit_width(static_cast<unsigned>(ranks - 1))))} {}

void WireScale::resume(const Memory& memory) {
  check(is_possible(memory.exponent, memory.room), "no scale of a wire has these");
  const int room = std::max(memory_.room, memory.room);
  memory_ = memory;
  memory_.room = room;
}

bool WireScale::is_possible(std::int64_t exponent, std::int64_t room) {
  return exponent >= kLeastWireExponent && exponent <= kMostWireExponent && room >= kRoomToGrow &&
         room <= kMostRoom;
}

void WireScale::step(const WireReport& report) {
  auto& [exponent, room, is_settled, was_settled] = memory_;
  const int used = exponent;
  if (report.was_too_large && was_settled) room = std::min(room + kMoreRoom, kMostRoom);
  was_settled = is_settled;
  if (report.largest >= kInfiniteFloat16.bits) return;
  int next = used;
  if (report.largest == kLargestFloat16.bits) {
    next = used - kStride;
    is_settled = false;
  } else if (report.largest > 0) {
    const int magnitude = std::ilogb(to_float(Float16{report.largest})) - used;
    const int wanted = kMostMagnitude - room - magnitude;
    next = is_settled ? std::min(wanted, used + 1) : wanted;
    is_settled = true;
  } else if (report.was_too_large) {
    next = used - kMoreRoom;  // contributions cancel, so their size is unknown
  } else if (report.was_too_small) {
    next = used + kStride;
  }
  exponent = std::clamp(next, kLeastWireExponent, kMostWireExponent);
}

}  // namespace kolo
