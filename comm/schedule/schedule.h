#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/schedule/bucket_layout.h"
#include "comm/schedule/step.h"

namespace kolo {

/// The typical content of a payload, used only to predict times.
struct PayloadUse {
  std::size_t bytes = 0;
  std::size_t entries = 0;  ///< Index-value pairs, which a codec processes one by one.
};

/// The memory of one payload in Region::kPayload.
struct PayloadSlot {
  std::size_t offset = 0;  ///< Offset, in elements, of the first element that it encodes.
  std::size_t count = 0;   ///< Number of elements that it encodes.
  std::size_t first_byte = 0;
  std::size_t capacity = 0;  ///< Size of its memory in bytes.
  PayloadUse usual = {};     ///< Typical content; at most `capacity` bytes.

  std::size_t end() const { return offset + count; }
};

/// All operations of one rank on one bucket, as data. A schedule is compiled once, can be verified
/// without moving data, and runs many times.
struct Schedule {
  int rank = 0;
  std::string algorithm;
  BucketLayout layout;
  /// The bucket has memory of its own. False if steps use only the caller's tensors, scratch and
  /// staging memory. Equal on all ranks.
  bool has_bucket = true;
  std::size_t scratch_count = 0;  ///< Size of scratch memory, in elements of layout.dtype.
  /// Size of staging memory, in elements of layout.dtype; for a host bucket, equal on all ranks.
  std::size_t staging_count = 0;
  /// Number of copies of a host bucket's staging memory: iteration i uses copy i % staging_turns.
  /// With two copies, peers may still read one iteration's staging memory during the next one.
  std::uint32_t staging_turns = 1;
  /// A rank may start an iteration when its own data is ready, before other ranks are ready.
  bool eager = false;
  /// No rank completes an iteration before all ranks have started it; equal on all ranks.
  bool mutual = true;
  /// Number of flags for each pair of ranks. Equal on all ranks of a node, so that they assign the
  /// same flag numbers to all buckets.
  std::uint32_t flag_count = 0;
  /// Number of ranks over which native steps average before a kernel does the rest of an average.
  std::size_t averaged_ranks = 1;
  std::vector<PayloadSlot> payloads = {};  ///< Sorted by offset, contiguous from offset 0.
  std::size_t payload_bytes = 0;           ///< Size of the memory of all payloads in bytes.
  std::vector<Step> steps;

  /// Returns the payloads that make up a range of Region::kPayload; empty if the range ends inside
  /// a payload.
  std::span<const PayloadSlot> payloads_in(const Range& range) const;
};

/// Returns the typical content of the payloads in `range`; for other regions, the bytes of its
/// elements.
PayloadUse usual_use(const Schedule& schedule, const Range& range);

/// Returns the largest possible size in bytes of a message that sends `source`.
std::size_t message_bytes(const Schedule& schedule, const Range& source);

/// The arena space that a host bucket needs. All sizes are in bytes, multiples of kWireAlignment
/// and equal on all ranks.
struct ArenaNeeds {
  std::size_t bucket_bytes = 0;
  std::size_t turn_bytes = 0;     ///< One copy of the staging memory.
  std::size_t staging_bytes = 0;  ///< All copies of the staging memory.

  std::size_t total() const { return bucket_bytes + staging_bytes; }
};
ArenaNeeds arena_needs(const Schedule& schedule);

/// Whether the schedule has send or receive steps.
bool has_messages(const Schedule& schedule);

/// The bytes and messages that a schedule sends. A payload counts with its capacity.
struct ScheduleTraffic {
  std::size_t messages = 0;
  std::size_t bytes = 0;
};

/// Returns the traffic to the peers for which `counts(peer)` is true.
template <typename Predicate>
ScheduleTraffic traffic(const Schedule& schedule, Predicate counts) {
  ScheduleTraffic total;
  for (const Step& step : schedule.steps) {
    if (step.kind != StepKind::kSend || !counts(step.peer)) continue;
    ++total.messages;
    total.bytes += message_bytes(schedule, step.sources[0]);
  }
  return total;
}

}  // namespace kolo
