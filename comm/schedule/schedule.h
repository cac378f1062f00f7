#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/schedule/bucket_layout.h"
#include "comm/schedule/step.h"

namespace kolo {

/// What a payload holds as a rule. For predictions of time only.
struct PayloadUse {
  std::size_t bytes = 0;
  std::size_t entries = 0;  ///< That a codec handles one by one, as pairs.
};

/// Memory for one payload of a codec.
struct PayloadSlot {
  std::size_t offset = 0;  ///< In Region::kPayload: of the first of the elements it stands for.
  std::size_t count = 0;   ///< How many these are.
  std::size_t first_byte = 0;
  std::size_t capacity = 0;  ///< Bytes. 0: the payload is only named, and kept in the codec.
  PayloadUse usual = {};     ///< At most `capacity`.

  std::size_t end() const { return offset + count; }
};

/// Everything one rank does to one bucket, as data: compiled once, verified without moving a byte,
/// run many times.
struct Schedule {
  int rank = 0;
  std::string algorithm;
  BucketLayout layout;
  /// The bucket has memory of its own; false where steps need but the caller's tensors, scratch and
  /// staging memory. Equal on all ranks.
  bool has_bucket = true;
  std::size_t scratch_count = 0;  ///< Elements of layout.dtype.
  /// Elements of layout.dtype; of a host bucket equal on all ranks.
  std::size_t staging_count = 0;
  /// How often a host bucket's staging memory exists: iteration i uses number i % staging_turns.
  /// With two, a peer may still read what an iteration has staged while the next one is under way.
  std::uint32_t staging_turns = 1;
  /// A rank may start an iteration as soon as it is ready there, and need not know that others are.
  bool eager = false;
  /// Flags between this rank and any one peer; equal on all ranks of a node, which number the flags
  /// of all their buckets alike.
  std::uint32_t flag_count = 0;
  std::vector<PayloadSlot> payloads = {};  ///< Ascending, side by side from offset 0 on.
  std::size_t payload_bytes = 0;           ///< Of all payloads.
  std::vector<Step> steps;

  /// The payloads that make up a range of Region::kPayload; none if it does not consist of whole
  /// payloads.
  std::span<const PayloadSlot> payloads_in(const Range& range) const;
};

/// What `range`, elements or payloads, holds as a rule; of elements, their bytes.
PayloadUse usual_use(const Schedule& schedule, const Range& range);

/// What a message of `source` takes at most.
std::size_t message_bytes(const Schedule& schedule, const Range& source);

/// What a host bucket takes of the arena, in bytes, each a multiple of kWireAlignment. The same on
/// all ranks.
struct ArenaNeeds {
  std::size_t bucket_bytes = 0;
  std::size_t turn_bytes = 0;     ///< Of staging memory, from one turn to the next.
  std::size_t staging_bytes = 0;  ///< All turns.

  std::size_t total() const { return bucket_bytes + staging_bytes; }
};
ArenaNeeds arena_needs(const Schedule& schedule);

/// Bytes and messages that `schedule` sends, payloads as large as planned.
struct ScheduleTraffic {
  std::size_t messages = 0;
  std::size_t bytes = 0;
};

/// Counts what the schedule sends to each peer for which `counts(peer)` holds.
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
