#include "fusion/wire_scale.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "comm/base/check.h"
#include "comm/base/half.h"
#include "comm/kernels/reduce_kernels.h"

namespace kolo {
namespace {

constexpr int kMostMagnitude = 15;  // Exponent of the largest finite float16, which is below 2^16.
// A tensor may grow 64-fold from one step to the next.
constexpr int kRoomToGrow = 6;
// A contribution may exceed its mean by a factor of the number of ranks; a larger excess is
// reported.
constexpr int kMostRoomForRanks = 8;
constexpr int kMoreRoom = 3;
constexpr int kMostRoom = 24;
// Values that became zero were below float16's smallest value, 2^-24; with the exponent raised by
// this, none is too large.
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
