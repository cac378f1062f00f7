#include "comm/verify/step_rules.h"

#include <algorithm>
#include <span>

#include <fmt/format.h>

#include "comm/schedule/exposed_buffer.h"
#include "comm/verify/codec_rules.h"

namespace kolo {
namespace {

using Complaint = std::optional<std::string>;

std::vector<std::pair<Range, Access>> operands(const Step& step) {
  std::vector<std::pair<Range, Access>> result;
  for (const Range& source : step.sources) result.emplace_back(source, Access::kRead);
  if (step.target.count > 0) result.emplace_back(step.target, Access::kWrite);
  for (const Range& mirror : step.mirrors) result.emplace_back(mirror, Access::kWrite);
  return result;
}

bool is_flag(const Step& step) {
  return step.kind == StepKind::kSignal || step.kind == StepKind::kAwait;
}

bool is_message(const Step& step) {
  return step.kind == StepKind::kSend || step.kind == StepKind::kRecv;
}

std::size_t size_of_region(const Schedule& schedule, Region region) {
  switch (region) {
    case Region::kScratch:
      return schedule.scratch_count;
    case Region::kStaging:
      return schedule.staging_count;
    case Region::kBucket:
      return schedule.has_bucket ? schedule.layout.count : 0;
    case Region::kUser:
      return schedule.layout.count;
    case Region::kInput:
      return schedule.layout.out_of_place ? schedule.layout.count : 0;
    case Region::kExposedInput:
    case Region::kExposedResult:
      return schedule.layout.is_on_device() ? 0 : schedule.layout.count;
    case Region::kPairs:
      return schedule.layout.is_on_device() ? schedule.layout.count : 0;
    case Region::kPayload:
      return schedule.payloads.empty() ? 0 : schedule.payloads.back().end();
  }
  return 0;
}

Complaint check_order(const Step& step, const Schedule& schedule, const ProcessGrid& grid) {
  for (StepId id : step.after) {
    if (id >= schedule.steps.size()) return "comes after a step that is not there";
  }
  if (is_flag(step) || is_message(step)) {
    if (step.peer < 0 || step.peer >= grid.world_size() || step.peer == schedule.rank) {
      return fmt::format("has no peer {}", step.peer);
    }
  }
  if (is_flag(step) && !grid.same_node(schedule.rank, step.peer)) return "uses a flag across nodes";
  if ((is_flag(step) || step.kind == StepKind::kNative) && step.ordinal >= schedule.flag_count) {
    return "uses a flag beyond flag_count";
  }
  if (step.lag > 0 && (step.kind != StepKind::kAwait || step.lag >= schedule.staging_turns)) {
    return fmt::format("waits for {} iterations ago, with {} turns of staging memory", step.lag,
                       schedule.staging_turns);
  }
  return std::nullopt;
}

Complaint check_device_range(const Step& step, const Range& range, Access access,
                             const Schedule& schedule, const VerifyOptions& options) {
  if (range.region == Region::kPayload || range.region == Region::kPairs) return std::nullopt;
  if (range.region == Region::kStaging) {
    if (!is_message(step) && step.kind != StepKind::kCopy) return "computes in staging memory";
  } else if (is_message(step) && !options.network_takes_device_memory) {
    return "hands device memory to the network";
  }
  if (range.region == Region::kInput && access == Access::kWrite) {
    return "writes to tensors that are only read";
  }
  const bool is_users = range.region == Region::kUser || range.region == Region::kInput;
  const bool is_packed = step.kind == StepKind::kPack || step.kind == StepKind::kUnpack;
  if (is_users && !is_packed && schedule.layout.placement != Placement::kUser) {
    return "works in the caller's tensors";
  }
  return std::nullopt;
}

// Checks a range in the caller's tensors, which are not contiguous and may have another dtype.
Complaint check_user_range(const Step& step, const Range& range, Access access,
                           const Schedule& schedule) {
  if (range.region == Region::kInput && access == Access::kWrite) {
    return "writes to tensors that are only read";
  }
  const bool is_user = schedule.layout.placement == Placement::kUser;
  const bool is_packed = step.kind == StepKind::kPack && range != step.target;
  const bool is_copied =
      range.region == Region::kInput && range.offset == step.target.offset && is_user;
  const bool is_unpacked = step.kind == StepKind::kUnpack && (range == step.target || is_copied);
  const bool is_reduced = step.kind == StepKind::kReduce && is_user;
  const bool is_exchanged = step.kind == StepKind::kExchange && range != step.target;
  if (is_packed || is_unpacked || is_reduced || is_exchanged || step.kind == StepKind::kCodec) {
    return std::nullopt;
  }
  return "works in the caller's tensors";
}

// Checks a range of an exposed contribution. Peers read the tensors without a cast, and only the
// owner chooses which elements are exposed.
Complaint check_exposed_input(const Step& step, const Range& range, Access access,
                              const Schedule& schedule) {
  const ExposedBuffer exposed_buffer = ExposedBuffer::of(range, schedule.layout);
  if (schedule.layout.placement != Placement::kUser) return "exposes elements that are cast";
  if (exposed_buffer.slot.end() > schedule.staging_count) return "exposes by a slot beyond the end";
  if (access == Access::kRead) {
    const bool reads = step.kind == StepKind::kUnpack || step.kind == StepKind::kReduce ||
                       step.kind == StepKind::kCopy || step.kind == StepKind::kSend;
    return reads ? std::nullopt : Complaint("works in tensors that are exposed");
  }
  if (step.kind != StepKind::kPack) return "writes to tensors that are exposed";
  if (step.sources.size() != 1 || step.sources[0] != exposed_buffer.tensors) {
    return "exposes other elements than it says";
  }
  return std::nullopt;
}

// Checks a range of an exposed result: one peer writes it, and then its owner completes it.
Complaint check_exposed_result(const Step& step, const Range& range, Access access,
                               const Schedule& schedule) {
  const ExposedBuffer exposed_buffer = ExposedBuffer::of(range, schedule.layout);
  const bool is_own = range.rank == schedule.rank;
  if (schedule.layout.placement != Placement::kUser) return "exposes elements that are cast";
  if (exposed_buffer.slot.end() > schedule.staging_count) return "exposes a slot beyond the end";
  if (access == Access::kRead) {
    const bool takes =
        step.kind == StepKind::kUnpack && is_own && step.target == exposed_buffer.tensors;
    return takes ? std::nullopt : Complaint("reads what is exposed");
  }
  if (is_own)
    return step.kind == StepKind::kExpose ? std::nullopt : Complaint("writes its own exposure");
  const bool writes = step.kind == StepKind::kReduce || step.kind == StepKind::kPack;
  return writes ? std::nullopt : Complaint("writes to tensors that are exposed");
}

Complaint check_range(const Step& step, const Range& range, Access access, const Schedule& schedule,
                      const ProcessGrid& grid, const VerifyOptions& options) {
  const bool on_device = schedule.layout.is_on_device();
  const bool is_shared = range.region == Region::kBucket || range.region == Region::kStaging ||
                         ExposedBuffer::is_exposed(range);
  const bool own_only =
      on_device || is_message(step) || !is_shared ||
      (access == Access::kWrite && range == step.target && range.region != Region::kExposedResult);
  if (range.rank != schedule.rank && (own_only || !grid.same_node(schedule.rank, range.rank))) {
    return "touches memory that is not its own";
  }
  if (range.end() > size_of_region(schedule, range.region)) return "touches memory beyond the end";
  if (on_device) return check_device_range(step, range, access, schedule, options);
  if (range.region == Region::kExposedInput)
    return check_exposed_input(step, range, access, schedule);
  if (range.region == Region::kExposedResult)
    return check_exposed_result(step, range, access, schedule);
  if (range.region == Region::kUser || range.region == Region::kInput) {
    return check_user_range(step, range, access, schedule);
  }
  return std::nullopt;
}

// Checks an exchange: it moves elements between the caller's tensors and a slot of this rank
// without changing them.
Complaint check_exchange(const Step& step, const Schedule& schedule) {
  if (step.sources.size() != 2 || step.mirrors.size() != 1) return "has not two ways";
  const Range& target = step.mirrors[0];
  const Range& source = step.sources[1];
  if (schedule.layout.placement != Placement::kUser) return "casts while it exchanges";
  if (step.sources[0] != step.target) return "unpacks another slot than it packs";
  if (step.target.region != Region::kStaging) return "exchanges what is in no slot";
  if (target.region != Region::kUser || target.rank != schedule.rank) return "unpacks to no tensor";
  if (source.region != Region::kUser && source.region != Region::kInput) return "packs no tensor";
  if (target.count != step.target.count) return "combines ranges of different length";
  if (target.overlaps(source)) return "writes over elements that it has not read";
  return std::nullopt;
}

// Checks that outputs do not overlap other operands: a kernel reads ahead of its writes.
Complaint check_outputs(const Step& step, const Schedule& schedule) {
  if (step.kind == StepKind::kExchange) return check_exchange(step, schedule);
  if (!step.mirrors.empty() && step.kind != StepKind::kReduce) return "has mirrors";
  if (step.kind != StepKind::kReduce) return std::nullopt;
  std::vector<Range> outputs{step.target};
  for (const Range& mirror : step.mirrors) {
    if (mirror.rank == schedule.rank) return "mirrors into its own memory";
    if (mirror.count != step.target.count) return "has a mirror of another length";
    outputs.push_back(mirror);
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    for (const Range& source : step.sources) {
      if (outputs[i].overlaps(source) && outputs[i] != source) {
        return "writes over elements that it has not read";
      }
    }
    for (std::size_t j = 0; j < i; ++j) {
      if (outputs[i].overlaps(outputs[j])) return "writes one element twice";
    }
  }
  return std::nullopt;
}

bool are_side_by_side(std::span<const Range> ranges) {
  return std::ranges::adjacent_find(ranges, [](const Range& a, const Range& b) {
           return a.region != b.region || a.end() != b.offset;
         }) == ranges.end();
}

bool overlaps_any(const Range& output, std::span<const Range> ranges) {
  return std::ranges::any_of(ranges, [&](const Range& range) { return range.overlaps(output); });
}

// Checks that outputs overlap neither each other nor any input. This rank's own part is an
// exception: it may be in place.
Complaint check_native_outputs(const Step& step, std::size_t position, std::size_t members) {
  for (std::size_t i = 0; i < step.mirrors.size(); ++i) {
    const Range& output = step.mirrors[i];
    const bool is_of_own = i % members == position;
    const bool is_own =
        is_of_own &&
        ((step.native == NativeOp::kGatherParts && output == step.sources[i / members]) ||
         (step.native == NativeOp::kExchange && output == step.sources[i]));
    const bool is_own_sum =
        step.native == NativeOp::kReduceParts && output == step.sources[i * members + position];
    if (!is_own && !is_own_sum && overlaps_any(output, step.sources)) {
      return "writes over elements that it has not read";
    }
    if (overlaps_any(output, std::span(step.mirrors).subspan(i + 1))) {
      return "writes one element twice";
    }
  }
  return std::nullopt;
}

// Checks a native step with parts: for each tensor it has one range per rank of the group and,
// except in an exchange, one range for this rank alone.
Complaint check_native_parts(const Step& step, std::size_t position, std::size_t members) {
  const bool exchanges = step.native == NativeOp::kExchange;
  const bool gathers = step.native == NativeOp::kGatherParts;
  const std::vector<Range>& all = gathers ? step.mirrors : step.sources;
  const std::vector<Range>& own = gathers ? step.sources : step.mirrors;
  if (step.target.count > 0) return "has two kinds of targets";
  if (all.empty() || all.size() % members != 0) return "has not a range for each rank";
  if (own.size() * (exchanges ? 1 : members) != all.size()) return "has not a part of each tensor";
  for (std::size_t first = 0; first < all.size(); first += members) {
    const std::span<const Range> ranges = std::span(all).subspan(first, members);
    const Range& given = exchanges ? own[first + position] : own[first / members];
    if (!exchanges && !are_side_by_side(ranges)) return "has parts that are not side by side";
    if (ranges[position].count != given.count) return "has its part in two lengths";
  }
  return check_native_outputs(step, position, members);
}

// Checks a native step. For p ranks the whole consists of p equal parts, and this rank's part is at
// its rank's offset.
Complaint check_native(const Step& step, const Schedule& schedule, const ProcessGrid& grid) {
  const std::vector<int> members = meeting_members(step, schedule.rank, grid);
  const auto position = static_cast<std::size_t>(
      std::find(members.begin(), members.end(), schedule.rank) - members.begin());
  const bool sums = step.native == NativeOp::kReduceScatter ||
                    step.native == NativeOp::kAllReduce || step.native == NativeOp::kReduceParts;
  if (step.finishes && !sums) return "scales what it does not combine";
  if (has_parts(step.native)) return check_native_parts(step, position, members.size());
  if (step.sources.size() != 1 || !step.mirrors.empty()) return "has not one source";
  const Range& source = step.sources[0];
  const auto is_whole = [&](const Range& range) {
    return range.region == Region::kBucket ||
           (schedule.layout.placement == Placement::kUser && range.region == Region::kUser);
  };
  const bool is_contribution =
      step.native == NativeOp::kAllReduce && source.region == Region::kInput;
  const bool reads_whole = is_whole(source) || is_contribution;
  if (!reads_whole || !is_whole(step.target)) return "works outside the bucket";
  if (step.native == NativeOp::kAllReduce) {
    if (source.count != step.target.count) return "has its whole in two lengths";
    if (source != step.target && source.overlaps(step.target)) {
      return "writes over elements that it has not read";
    }
    return std::nullopt;
  }
  const bool scatters = step.native == NativeOp::kReduceScatter;
  const Range& whole = scatters ? source : step.target;
  const Range& part = scatters ? step.target : source;
  if (part.count * members.size() != whole.count) return "has parts that are not equal";
  if (part.offset != whole.offset + position * part.count) return "has its part out of place";
  return std::nullopt;
}

}  // namespace

std::vector<std::pair<Range, Access>> accesses(const Step& step, const BucketLayout& layout) {
  std::vector<std::pair<Range, Access>> result;
  for (const auto& [range, access] : operands(step)) {
    if (!ExposedBuffer::is_exposed(range)) {
      result.emplace_back(range, access);
      continue;
    }
    const ExposedBuffer exposed_buffer = ExposedBuffer::of(range, layout);
    result.emplace_back(exposed_buffer.slot, access);
    const bool leaves_note = access == Access::kWrite && (step.kind == StepKind::kExpose ||
                                                          range.region == Region::kExposedInput);
    if (!leaves_note) result.emplace_back(exposed_buffer.tensors, access);
  }
  return result;
}

std::vector<int> meeting_members(const Step& step, int rank, const ProcessGrid& grid) {
  if (step.group == NativeGroup::kNode) return grid.ranks_of_node(grid.node(rank));
  return grid.ranks();
}

std::optional<std::string> check_step(const Step& step, const Schedule& schedule,
                                      const ProcessGrid& grid, const VerifyOptions& options) {
  if (auto wrong = check_order(step, schedule, grid)) return wrong;
  const bool on_device = schedule.layout.is_on_device();
  if (on_device && is_flag(step)) return "passes memory of a device by a flag";
  if (!on_device && step.kind == StepKind::kNative) return "is not for a bucket of the host";
  for (const auto& [range, access] : operands(step)) {
    if (auto wrong = check_range(step, range, access, schedule, grid, options)) return wrong;
  }
  if (auto wrong = check_payloads(step, schedule)) return wrong;
  if (step.kind == StepKind::kNative) return check_native(step, schedule, grid);
  if (step.kind == StepKind::kCodec) return check_codec(step, schedule);
  for (const Range& source : step.sources) {
    if (step.target.count > 0 && source.count != step.target.count) {
      return "combines ranges of different length";
    }
  }
  return check_outputs(step, schedule);
}

}  // namespace kolo
