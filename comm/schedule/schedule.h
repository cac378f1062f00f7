#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "comm/schedule/bucket_layout.h"
#include "comm/schedule/step.h"

namespace kolo {

/// Everything one rank does to one bucket, as data: compiled once, verified without moving a byte,
/// run many times.
struct Schedule {
  int rank = 0;
  std::string algorithm;
  BucketLayout layout;
  std::size_t scratch_count = 0;  ///< Elements of layout.dtype.
  std::size_t staging_count = 0;  ///< Elements of layout.dtype.
  /// Flags between this rank and any one peer; equal on all ranks of a node, which number the flags
  /// of all their buckets alike.
  std::uint32_t flag_count = 0;
  std::vector<Step> steps;
};

/// Bytes and messages that `schedule` sends, by kind of link.
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
    total.bytes += step.sources[0].count * size_of(schedule.layout.dtype);
  }
  return total;
}

}  // namespace kolo
