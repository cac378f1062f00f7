#include "comm/schedule/schedule_builder.h"

#include <algorithm>

#include "comm/base/check.h"

namespace kolo {

ScheduleBuilder::ScheduleBuilder(int rank, std::string algorithm, BucketLayout layout) {
  schedule_.rank = rank;
  schedule_.algorithm = std::move(algorithm);
  schedule_.layout = layout;
}

Range ScheduleBuilder::scratch(std::size_t count) {
  const std::size_t unit = std::max<std::size_t>(1, kWireAlignment / size_of(layout().dtype));
  const Range range{rank(), Region::kScratch, schedule_.scratch_count, count};
  schedule_.scratch_count += (count + unit - 1) / unit * unit;
  return range;
}

void ScheduleBuilder::load(const Range& range) {
  if (layout().placement == Placement::kInPlace || range.count == 0) return;
  const Range user{rank(), Region::kUser, range.offset, range.count};
  append({.kind = StepKind::kPack, .target = range, .sources = {user}}, {user}, {range});
}

void ScheduleBuilder::deliver(const Range& range, Sink sink) {
  if (range.count == 0) return;
  if (sink == Sink::kUser && layout().placement == Placement::kStaged) {
    const Range user{rank(), Region::kUser, range.offset, range.count};
    append({.kind = StepKind::kUnpack, .target = user, .sources = {range}}, {range}, {user});
  } else if (range.rank != rank()) {
    copy(bucket(range.offset, range.count), range);
  }
}

void ScheduleBuilder::send(int peer, const Range& source) {
  if (source.count == 0) return;
  append({.kind = StepKind::kSend, .peer = peer, .ordinal = sent_[peer]++, .sources = {source}},
         {source}, {});
}

void ScheduleBuilder::recv(int peer, const Range& target) {
  if (target.count == 0) return;
  append({.kind = StepKind::kRecv, .peer = peer, .ordinal = received_[peer]++, .target = target},
         {}, {target});
}

void ScheduleBuilder::signal(int peer, const Range& range, Access access) {
  const std::uint32_t ordinal = signalled_[peer]++;
  schedule_.flag_count = std::max(schedule_.flag_count, ordinal + 1);
  if (range.count == 0) return;
  Step step{.kind = StepKind::kSignal, .peer = peer, .ordinal = ordinal};
  if (access == Access::kRead) {
    append(std::move(step), {range}, {});
  } else {
    append(std::move(step), {}, {range});
  }
}

void ScheduleBuilder::await(int peer, const Range& range) {
  const std::uint32_t ordinal = awaited_[peer]++;
  schedule_.flag_count = std::max(schedule_.flag_count, ordinal + 1);
  if (range.count == 0) return;
  append({.kind = StepKind::kAwait, .peer = peer, .ordinal = ordinal}, {}, {range});
}

void ScheduleBuilder::reduce(const Range& target, std::vector<Range> sources, bool finishes) {
  if (target.count == 0) return;
  const std::vector<Range> reads = sources;
  append({.kind = StepKind::kReduce,
          .target = target,
          .sources = std::move(sources),
          .finishes = finishes},
         reads, {target});
}

void ScheduleBuilder::copy(const Range& target, const Range& source) {
  if (target.count == 0) return;
  append({.kind = StepKind::kCopy, .target = target, .sources = {source}}, {source}, {target});
}

void ScheduleBuilder::depend(Step& step, const Range& range, Access access) {
  for (const Touch& touch : touched_[{range.rank, range.region}]) {
    if (access == Access::kRead && touch.access == Access::kRead) continue;
    if (touch.range.overlaps(range)) step.after.push_back(touch.step);
  }
}

void ScheduleBuilder::append(Step step, const std::vector<Range>& reads,
                             const std::vector<Range>& writes) {
  for (const Range& range : reads) depend(step, range, Access::kRead);
  for (const Range& range : writes) depend(step, range, Access::kWrite);
  std::sort(step.after.begin(), step.after.end());
  step.after.erase(std::unique(step.after.begin(), step.after.end()), step.after.end());

  const StepId id = narrow<StepId>(schedule_.steps.size());
  for (const Range& range : writes) {
    // Whoever comes after this write and would wait for something it covers waits for it instead.
    auto& touches = touched_[{range.rank, range.region}];
    std::erase_if(touches, [&](const Touch& touch) {
      return range.offset <= touch.range.offset && touch.range.end() <= range.end();
    });
    touches.push_back({id, range, Access::kWrite});
  }
  for (const Range& range : reads) {
    touched_[{range.rank, range.region}].push_back({id, range, Access::kRead});
  }
  schedule_.steps.push_back(std::move(step));
}

Schedule ScheduleBuilder::build() && { return std::move(schedule_); }

}  // namespace kolo
