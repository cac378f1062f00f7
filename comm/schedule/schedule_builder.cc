#include "comm/schedule/schedule_builder.h"

#include <algorithm>
#include <utility>

#include "comm/base/check.h"

namespace kolo {

void ChunkWindow::next_chunk() {
  ++number_;
  if (has_begun()) former_ = std::exchange(current(), Chunk{});
}

std::optional<StepId> ChunkWindow::before_send(int peer) const {
  const auto it = former_.last_from.find(peer);
  return it != former_.last_from.end() ? it->second : former_.last;
}

void ChunkWindow::received(int peer, StepId step) {
  if (!has_begun()) return;
  current().last_from[peer] = step;
  current().last = step;
}

std::optional<std::size_t> ChunkWindow::reuse_scratch(std::size_t count) {
  if (!has_begun()) return std::nullopt;
  auto& blocks = current().scratch;
  const std::size_t place = blocks.size();
  if (place >= former_.scratch.size() || former_.scratch[place].count < count) return std::nullopt;
  blocks.push_back(former_.scratch[place]);
  return blocks.back().offset;
}

void ChunkWindow::add_scratch(std::size_t offset, std::size_t count) {
  if (has_begun()) current().scratch.push_back({offset, count});
}

ScheduleBuilder::ScheduleBuilder(int rank, std::string algorithm, BucketLayout layout,
                                 DeviceMessages messages, std::size_t window)
    : is_staged_(layout.is_on_device() && !messages.are_direct), window_(window) {
  schedule_.rank = rank;
  schedule_.algorithm = std::move(algorithm);
  schedule_.layout = layout;
  const std::size_t capacity = messages.staging_count / unit() * unit();
  outgoing_ = {.begin = 0, .count = capacity};
  incoming_ = {.begin = capacity, .count = capacity};
}

std::size_t ScheduleBuilder::unit() const {
  return std::max<std::size_t>(1, kWireAlignment / size_of(layout().dtype));
}

std::size_t ScheduleBuilder::rounded_up(std::size_t count) const {
  return (count + unit() - 1) / unit() * unit();
}

Range ScheduleBuilder::scratch(std::size_t count) {
  const std::size_t needed = rounded_up(count);
  if (const auto offset = window_.reuse_scratch(needed)) {
    return {rank(), Region::kScratch, *offset, count};
  }
  const Range range{rank(), Region::kScratch, schedule_.scratch_count, count};
  window_.add_scratch(range.offset, needed);
  schedule_.scratch_count += needed;
  return range;
}

Range ScheduleBuilder::home(std::size_t offset, std::size_t count) const {
  const bool in_place = layout().placement == Placement::kInPlace;
  return {rank(), in_place ? Region::kBucket : Region::kUser, offset, count};
}

Range ScheduleBuilder::input(std::size_t offset, std::size_t count) const {
  if (!layout().out_of_place) return home(offset, count);
  return {rank(), Region::kInput, offset, count};
}

Range ScheduleBuilder::staging(std::size_t count) {
  const Range slot{rank(), Region::kStaging, schedule_.staging_count, count};
  schedule_.staging_count += rounded_up(count);
  return slot;
}

template <typename Visit>
void ScheduleBuilder::for_each_slot(Ring& ring, const Range& range, Visit visit) {
  const std::size_t largest = ring.count / 2 / unit() * unit();
  check(largest > 0, "messages of a device bucket need staging memory of two units or more");
  Range piece = range;
  for (; piece.offset < range.end(); piece.offset += piece.count) {
    piece.count = std::min(largest, range.end() - piece.offset);
    visit(piece, next_slot(ring, piece.count));
  }
}

Range ScheduleBuilder::next_slot(Ring& ring, std::size_t count) {
  schedule_.staging_count = outgoing_.count + incoming_.count;
  if (ring.next + count > ring.count) ring.next = 0;
  const Range slot{rank(), Region::kStaging, ring.begin + ring.next, count};
  ring.next += rounded_up(count);
  return slot;
}

void ScheduleBuilder::load(const Range& range) {
  if (layout().placement == Placement::kInPlace) return;
  move(range, input(range.offset, range.count), window_.before_load());
}

void ScheduleBuilder::deliver(const Range& range, Sink sink) {
  const Range target =
      sink == Sink::kUser ? home(range.offset, range.count) : bucket(range.offset, range.count);
  if (target != range) move(target, range);
}

void ScheduleBuilder::move(const Range& target, const Range& source,
                           std::optional<StepId> earlier) {
  if (target.count == 0) return;
  const bool packs = source.region == Region::kUser || source.region == Region::kInput;
  // Device tensors with the bucket's dtype are copied without cast and scale.
  const StepKind kind = layout().is_in_tensors(MemoryKind::kDevice) ? StepKind::kCopy
                        : target.region == Region::kUser            ? StepKind::kUnpack
                        : packs                                     ? StepKind::kPack
                                                                    : StepKind::kCopy;
  Step step{.kind = kind, .target = target, .sources = {source}};
  if (earlier) step.after.push_back(*earlier);
  append(std::move(step), {source}, {target});
}

void ScheduleBuilder::expose_input(const Range& exposed, bool for_copies) {
  if (exposed.count == 0) return;
  const ExposedBuffer exposed_buffer = ExposedBuffer::of(exposed, layout());
  append({.kind = StepKind::kPack,
          .target = exposed,
          .sources = {exposed_buffer.tensors},
          .for_copies = for_copies},
         {exposed_buffer.tensors}, {exposed_buffer.slot});
}

void ScheduleBuilder::expose_result(const Range& exposed, bool for_copies) {
  if (exposed.count == 0) return;
  append({.kind = StepKind::kExpose, .target = exposed, .for_copies = for_copies}, {}, {exposed});
}

void ScheduleBuilder::exchange(const Range& target, const Range& slot, const Range& source) {
  if (slot.count == 0) return;
  append(
      {.kind = StepKind::kExchange, .target = slot, .sources = {slot, source}, .mirrors = {target}},
      {slot, source}, {target, slot});
}

void ScheduleBuilder::send(int peer, const Range& source) {
  if (source.count == 0) return;
  if (!is_staged_ || source.region == Region::kPayload) return append_send(peer, source);
  for_each_slot(outgoing_, source, [&](const Range& piece, const Range& slot) {
    move(slot, piece);
    append_send(peer, slot);
  });
}

void ScheduleBuilder::append_send(int peer, const Range& source) {
  Step step{.kind = StepKind::kSend, .peer = peer, .ordinal = sent_[peer]++, .sources = {source}};
  if (const auto earlier = window_.before_send(peer)) step.after.push_back(*earlier);
  append(std::move(step), {source}, {});
}

void ScheduleBuilder::recv(int peer, const Range& target) {
  if (target.count == 0) return;
  if (!is_staged_ || target.region == Region::kPayload) return append_recv(peer, target);
  for_each_slot(incoming_, target, [&](const Range& piece, const Range& slot) {
    append_recv(peer, slot);
    move(piece, slot);
  });
}

void ScheduleBuilder::append_recv(int peer, const Range& target) {
  window_.received(peer, narrow<StepId>(schedule_.steps.size()));
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
  const std::uint32_t ordinal = next_awaited(peer);
  if (range.count == 0) return;
  append({.kind = StepKind::kAwait, .peer = peer, .ordinal = ordinal}, {}, {range});
}

void ScheduleBuilder::await_previous(int peer, const Range& range) {
  const std::uint32_t ordinal = next_awaited(peer);
  if (range.count == 0) return;
  append({.kind = StepKind::kAwait, .peer = peer, .ordinal = ordinal, .lag = 1}, {}, {});
}

std::uint32_t ScheduleBuilder::next_awaited(int peer) {
  const std::uint32_t ordinal = awaited_[peer]++;
  schedule_.flag_count = std::max(schedule_.flag_count, ordinal + 1);
  return ordinal;
}

void ScheduleBuilder::reduce(const Range& target, std::vector<Range> sources, bool finishes,
                             std::vector<Range> mirrors) {
  if (target.count == 0) return;
  const std::vector<Range> reads = sources;
  std::vector<Range> writes = mirrors;
  writes.push_back(target);
  append({.kind = StepKind::kReduce,
          .target = target,
          .sources = std::move(sources),
          .mirrors = std::move(mirrors),
          .finishes = finishes},
         reads, writes);
}

void ScheduleBuilder::native(NativeOp op, NativeGroup group, const Range& target,
                             const Range& source, bool finishes) {
  if (source.count == 0) return;
  append_native(
      {.target = target, .sources = {source}, .finishes = finishes, .native = op, .group = group});
}

void ScheduleBuilder::reduce_parts(std::vector<Range> targets, std::vector<Range> parts,
                                   bool finishes, NativeGroup group) {
  append_native({.sources = std::move(parts),
                 .mirrors = std::move(targets),
                 .finishes = finishes,
                 .native = NativeOp::kReduceParts,
                 .group = group});
}

void ScheduleBuilder::gather_parts(std::vector<Range> sources, std::vector<Range> parts,
                                   NativeGroup group) {
  append_native({.sources = std::move(sources),
                 .mirrors = std::move(parts),
                 .native = NativeOp::kGatherParts,
                 .group = group});
}

void ScheduleBuilder::exchange_parts(std::vector<Range> sent, std::vector<Range> received) {
  append_native({.sources = std::move(sent),
                 .mirrors = std::move(received),
                 .native = NativeOp::kExchange,
                 .group = NativeGroup::kWorld});
}

void ScheduleBuilder::append_native(Step step) {
  step.kind = StepKind::kNative;
  step.ordinal = natives_++;
  if (last_native_) step.after.push_back(*last_native_);
  last_native_ = narrow<StepId>(schedule_.steps.size());
  schedule_.flag_count = std::max(schedule_.flag_count, natives_);
  const auto is_empty = [](const Range& range) { return range.count == 0; };
  std::vector<Range> reads = step.sources, writes = step.mirrors;
  writes.push_back(step.target);
  std::erase_if(reads, is_empty);
  std::erase_if(writes, is_empty);
  append(std::move(step), reads, writes);
}

Range ScheduleBuilder::payload(std::size_t count, std::size_t capacity, const PayloadUse& usual) {
  auto& slots = schedule_.payloads;
  const std::size_t offset = slots.empty() ? 0 : slots.back().end();
  if (count > 0) {
    slots.push_back({.offset = offset,
                     .count = count,
                     .first_byte = schedule_.payload_bytes,
                     .capacity = capacity,
                     .usual = usual});
    schedule_.payload_bytes += (capacity + kWireAlignment - 1) / kWireAlignment * kWireAlignment;
  }
  return {rank(), Region::kPayload, offset, count};
}

void ScheduleBuilder::codec(CodecVerb verb, const Range& target,
                            const std::vector<Range>& sources) {
  append_codec({.kind = StepKind::kCodec, .target = target, .sources = sources, .verb = verb});
}

void ScheduleBuilder::decode(const Range& target, const std::vector<Range>& sources,
                             bool finishes) {
  append_codec({.kind = StepKind::kCodec,
                .target = target,
                .sources = sources,
                .finishes = finishes,
                .verb = CodecVerb::kDecode});
}

void ScheduleBuilder::append_codec(Step step) {
  std::erase_if(step.sources, [](const Range& source) { return source.count == 0; });
  if (step.sources.empty()) return;
  const std::vector<Range> reads = step.sources;
  const std::vector<Range> writes =
      step.target.count > 0 ? std::vector<Range>{step.target} : std::vector<Range>{};
  append(std::move(step), reads, writes);
}

void ScheduleBuilder::depend(Step& step, const Range& range, Access access) {
  accesses_[{range.rank, range.region}].for_each_overlap(range, [&](StepId earlier, Access former) {
    if (access == Access::kRead && former == Access::kRead) return;
    step.after.push_back(earlier);
  });
}

std::vector<Range> ScheduleBuilder::with_exposed(const std::vector<Range>& ranges) const {
  std::vector<Range> result;
  for (const Range& range : ranges) {
    if (!ExposedBuffer::is_exposed(range)) {
      result.push_back(range);
      continue;
    }
    const ExposedBuffer exposed_buffer = ExposedBuffer::of(range, layout());
    result.insert(result.end(), {exposed_buffer.tensors, exposed_buffer.slot});
  }
  return result;
}

void ScheduleBuilder::append(Step step, const std::vector<Range>& read,
                             const std::vector<Range>& written) {
  const std::vector<Range> reads = with_exposed(read);
  const std::vector<Range> writes = with_exposed(written);
  for (const Range& range : reads) depend(step, range, Access::kRead);
  for (const Range& range : writes) depend(step, range, Access::kWrite);
  const bool replaces = layout().replaces_inputs &&
                        std::ranges::find(writes, Region::kUser, &Range::region) != writes.end();
  if (replaces) depend(step, {rank(), Region::kInput, 0, layout().count}, Access::kWrite);
  std::sort(step.after.begin(), step.after.end());
  step.after.erase(std::unique(step.after.begin(), step.after.end()), step.after.end());

  const StepId id = narrow<StepId>(schedule_.steps.size());
  for (const Range& range : writes) {
    // Later steps depend on this write instead of the accesses that it covers.
    AccessIndex& accesses = accesses_[{range.rank, range.region}];
    accesses.erase_inside(range);
    accesses.add(id, range, Access::kWrite);
  }
  for (const Range& range : reads) {
    accesses_[{range.rank, range.region}].add(id, range, Access::kRead);
  }
  schedule_.steps.push_back(std::move(step));
}

Schedule ScheduleBuilder::build() && { return std::move(schedule_); }

}  // namespace kolo
