#include "comm/schedule/schedule.h"

namespace kolo {

ArenaNeeds arena_needs(const Schedule& schedule) {
  const auto aligned_bytes = [&](std::size_t count) {
    const std::size_t bytes = count * size_of(schedule.layout.dtype);
    return (bytes + kWireAlignment - 1) / kWireAlignment * kWireAlignment;
  };
  const std::size_t turn_bytes = aligned_bytes(schedule.staging_count);
  return {.bucket_bytes = schedule.has_bucket ? aligned_bytes(schedule.layout.count) : 0,
          .turn_bytes = turn_bytes,
          .staging_bytes = schedule.staging_turns * turn_bytes};
}

}  // namespace kolo
