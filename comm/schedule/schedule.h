#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/schedule/bucket_layout.h"
#include "comm/schedule/step.h"

namespace kolo {

/// The typical content of a payload, for time predictions only.
struct PayloadUse {
  std::size_t bytes = 0;
  std::size_t entries = 0;  ///< Pairs, which a codec processes one by one.
};

/// Memory for one payload of a codec.
struct PayloadSlot {
  std::size_t offset = 0;  ///< In Region::kPayload: offset of the first element that it encodes.
  std::size_t count = 0;   ///< Number of elements that it encodes.
  std::size_t first_byte = 0;
  std::size_t capacity = 0;  ///< Bytes.
  PayloadUse usual = {};     ///< At most `capacity`.

  std::size_t end() const { return offset + count; }
};

/// All operations of one rank on one bucket, as data: compiled once, verified without moving a
/// byte, run many times.
struct Schedule {
  int rank = 0;
  std::string algorithm;
  BucketLayout layout;
  /// The bucket has memory of its own; false if steps use only the caller's tensors, scratch and
  /// staging memory. Equal on all ranks.
  bool has_bucket = true;
  std::size_t scratch_count = 0;  ///< Elements of layout.dtype.
  /// Elements of layout.dtype; for a host bucket, equal on all ranks.
  std::size_t staging_count = 0;
  /// Number of copies of a host bucket's staging memory: iteration i uses copy i % staging_turns.
  /// With two, a peer may still read an iteration's staged data while the next iteration runs.
  std::uint32_t staging_turns = 1;
  /// A rank may start an iteration as soon as it is ready there, without knowing about other ranks.
  bool eager = false;
  /// No rank ends an iteration before all ranks have begun it; equal on all ranks.
  bool mutual = true;
  /// Number of flags between this rank and any one peer; equal on all ranks of a node, which number
  /// the flags of all their buckets alike.
  std::uint32_t flag_count = 0;
  std::vector<PayloadSlot> payloads = {};  ///< Ascending and contiguous from offset 0 on.
  std::size_t payload_bytes = 0;           ///< Size of all payloads.
  std::vector<Step> steps;

  /// The payloads that make up a range of Region::kPayload; empty unless the range consists of
  /// whole payloads.
  std::span<const PayloadSlot> payloads_in(const Range& range) const;
};

/// The typical content of `range`: for payloads their usual use, for elements their bytes.
PayloadUse usual_use(const Schedule& schedule, const Range& range);

/// The largest size in bytes of a message of `source`.
std::size_t message_bytes(const Schedule& schedule, const Range& source);

/// The arena space of a host bucket in bytes, each a multiple of kWireAlignment. Equal on all
/// ranks.
struct ArenaNeeds {
  std::size_t bucket_bytes = 0;
  std::size_t turn_bytes = 0;     ///< Staging memory of one turn.
  std::size_t staging_bytes = 0;  ///< Staging memory of all turns.

  std::size_t total() const { return bucket_bytes + staging_bytes; }
};
ArenaNeeds arena_needs(const Schedule& schedule);

/// Whether the schedule sends or receives messages.
bool has_messages(const Schedule& schedule);

/// Bytes and messages that `schedule` sends; payloads count with their planned size.
struct ScheduleTraffic {
  std::size_t messages = 0;
  std::size_t bytes = 0;
};

/// Counts data and messages sent to each peer for which `counts(peer)` holds.
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
