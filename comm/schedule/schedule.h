#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/schedule/bucket_layout.h"
#include "comm/schedule/step.h"

namespace kolo {

/// The usual content of a payload. For predictions of time only.
struct PayloadUse {
  std::size_t bytes = 0;
  std::size_t entries = 0;  ///< Pairs, which a codec handles one by one.
};

/// Memory for one payload of a codec.
struct PayloadSlot {
  std::size_t offset = 0;  ///< In Region::kPayload: of the first of the elements it stands for.
  std::size_t count = 0;   ///< Number of these elements.
  std::size_t first_byte = 0;
  std::size_t capacity = 0;  ///< Bytes.
  PayloadUse usual = {};     ///< At most `capacity`.

  std::size_t end() const { return offset + count; }
};

/// Everything one rank does to one bucket, as data: compiled once, verified without moving a byte,
/// run many times.
struct Schedule {
  int rank = 0;
  std::string algorithm;
  BucketLayout layout;
  /// The bucket has memory of its own; false if steps need only the caller's tensors, scratch and
  /// staging memory. Equal on all ranks.
  bool has_bucket = true;
  std::size_t scratch_count = 0;  ///< Elements of layout.dtype.
  /// Elements of layout.dtype; of a host bucket equal on all ranks.
  std::size_t staging_count = 0;
  /// How often a host bucket's staging memory exists: iteration i uses number i % staging_turns.
  /// With two, a peer may still read what an iteration has staged while the next one runs.
  std::uint32_t staging_turns = 1;
  /// A rank may start an iteration as soon as it is ready there, and need not know that others are.
  bool eager = false;
  /// No rank ends an iteration before all ranks have begun it; equal on all ranks.
  bool mutual = true;
  /// Flags between this rank and any one peer; equal on all ranks of a node, which number the flags
  /// of all their buckets alike.
  std::uint32_t flag_count = 0;
  std::vector<PayloadSlot> payloads = {};  ///< Ascending, side by side from offset 0 on.
  std::size_t payload_bytes = 0;           ///< All payloads.
  std::vector<Step> steps;

  /// The payloads that make up a range of Region::kPayload; none if it does not consist of whole
  /// payloads.
  std::span<const PayloadSlot> payloads_in(const Range& range) const;
};

/// The usual content of `range`, elements or payloads; for elements, their bytes.
PayloadUse usual_use(const Schedule& schedule, const Range& range);

/// The most bytes that a message of `source` takes.
std::size_t message_bytes(const Schedule& schedule, const Range& source);

/// The arena space of a host bucket in bytes, each a multiple of kWireAlignment. The same on all
/// ranks.
struct ArenaNeeds {
  std::size_t bucket_bytes = 0;
  std::size_t turn_bytes = 0;     ///< Staging memory of one turn.
  std::size_t staging_bytes = 0;  ///< All turns.

  std::size_t total() const { return bucket_bytes + staging_bytes; }
};
ArenaNeeds arena_needs(const Schedule& schedule);

/// Whether the schedule sends or receives any.
bool has_messages(const Schedule& schedule);

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
