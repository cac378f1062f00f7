#include "comm/schedule/schedule.h"

#include <algorithm>

namespace kolo {

std::string_view to_string(Region region) {
  static constexpr std::string_view kNames[] = {"bucket", "scratch",       "user",
                                                "input",  "staging",       "payload",
                                                "pairs",  "exposed_input", "exposed_result"};
  return kNames[static_cast<std::size_t>(region)];
}

std::string_view to_string(StepKind kind) {
  static constexpr std::string_view kNames[] = {"send",   "recv",     "signal", "await",
                                                "reduce", "copy",     "pack",   "unpack",
                                                "expose", "exchange", "native", "codec"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::span<const PayloadSlot> Schedule::payloads_in(const Range& range) const {
  const auto first = std::ranges::lower_bound(payloads, range.offset, {}, &PayloadSlot::offset);
  const auto last = std::ranges::lower_bound(payloads, range.end(), {}, &PayloadSlot::offset);
  if (first == last || first->offset != range.offset || std::prev(last)->end() != range.end()) {
    return {};
  }
  return {first, last};
}

PayloadUse usual_use(const Schedule& schedule, const Range& range) {
  if (range.region != Region::kPayload) {
    return {.bytes = range.count * size_of(schedule.layout.dtype)};
  }
  PayloadUse use;
  for (const PayloadSlot& slot : schedule.payloads_in(range)) {
    use.bytes += slot.usual.bytes;
    use.entries += slot.usual.entries;
  }
  return use;
}

std::size_t message_bytes(const Schedule& schedule, const Range& source) {
  if (source.region != Region::kPayload) return source.count * size_of(schedule.layout.dtype);
  std::size_t bytes = 0;
  for (const PayloadSlot& slot : schedule.payloads_in(source)) bytes += slot.capacity;
  return bytes;
}

bool has_messages(const Schedule& schedule) {
  return std::ranges::any_of(schedule.steps, [](const Step& step) {
    return step.kind == StepKind::kSend || step.kind == StepKind::kRecv;
  });
}

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
