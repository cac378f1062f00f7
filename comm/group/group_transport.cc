#include "comm/group/group_transport.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "comm/base/check.h"

namespace kolo {
namespace {

constexpr std::size_t kWord = sizeof(std::uint64_t);

std::size_t whole_pages(std::size_t bytes) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

std::size_t count_local(Transport& job, const std::vector<int>& ranks) {
  return static_cast<std::size_t>(
      std::ranges::count_if(ranks, [&](int rank) { return job.is_mapped(rank); }));
}

}  // namespace

GroupLayout::GroupLayout(const TransportLimits& limits, std::size_t local_size)
    : counters_offset(local_size * limits.flags_per_peer * kWord),
      data_offset(whole_pages(counters_offset + limits.counters * kWord)),
      total_bytes(data_offset + whole_pages(limits.arena_bytes)) {}

GroupTransport::GroupTransport(Transport& job, GroupMembers members, const TransportLimits& limits,
                               ControlInbox& inbox)
    : ForwardingTransport(job),
      members_(std::move(members)),
      limits_(limits),
      inbox_(inbox),
      layout_(limits, count_local(job, members_.ranks)) {
  int local = 0;
  for (int peer = 0; peer < world_size(); ++peer) {
    const int rank = at(members_.ranks, peer);
    if (rank == job.rank()) rank_ = peer;
    const bool mapped = job.is_mapped(rank);
    locals_.push_back(mapped ? local++ : -1);
    parts_.push_back(mapped ? job.memory(rank).data() + at(members_.places, peer).arena_offset
                            : nullptr);
  }
  ensure(rank_ >= 0, "a group without this rank");
}

void GroupTransport::clear(Transport& job, std::uint64_t arena_offset, const GroupLayout& layout) {
  job.commit(arena_offset, layout.data_offset);
  std::memset(job.memory(job.rank()).data() + arena_offset, 0, layout.data_offset);
}

/// Translates `tag` of a message from `source` to the tag at the receiving member `member`.
Tag GroupTransport::tag_at(int member, int source, const Tag& tag) const {
  Tag translated = tag;
  translated.source = static_cast<std::uint32_t>(at(members_.ranks, source));
  translated.bucket = at(members_.places, member).first_bucket + tag.bucket;
  return translated;
}

void GroupTransport::isend(int peer, const Tag& tag, std::span<const std::byte> data,
                           Completion& done) {
  if (closed_) return;
  below().isend(at(members_.ranks, peer), tag_at(peer, rank_, tag), data, done);
}

void GroupTransport::irecv(int peer, const Tag& tag, std::span<std::byte> data, Completion& done) {
  if (closed_) return;
  below().irecv(at(members_.ranks, peer), tag_at(rank_, peer, tag), data, done);
}

void GroupTransport::abandon(const Tag& first) { below().abandon(tag_at(rank_, rank_, first)); }

void GroupTransport::send_control(int peer, std::span<const std::byte> bytes) {
  if (closed_) return;
  ControlDemux::address(at(members_.places, peer).inbox, bytes, framed_);
  below().send_control(at(members_.ranks, peer), framed_);
}

bool GroupTransport::receive_control(ControlFrame& frame) {
  while (!inbox_.empty()) {
    frame = std::move(inbox_.front());
    inbox_.pop_front();
    const auto member = std::ranges::find(members_.ranks, frame.peer);
    if (member != members_.ranks.end()) {
      frame.peer = static_cast<int>(member - members_.ranks.begin());
      return true;
    }
    foreign_.drop(frame.peer, "it is for a group that this one is no member of");
  }
  return false;
}

std::span<std::byte> GroupTransport::memory(int peer) {
  return {part_of(peer) + layout_.data_offset, limits_.arena_bytes};
}

void GroupTransport::commit(std::size_t offset, std::size_t bytes, const Pause& pause) {
  if (offset > limits_.arena_bytes || bytes > limits_.arena_bytes - offset) {
    throw KoloError({.code = ErrorCode::kResources,
                     .what = "the arena of the group needs " + std::to_string(offset + bytes) +
                             " bytes and is limited to " + std::to_string(limits_.arena_bytes)});
  }
  below().commit(at(members_.places, rank_).arena_offset + layout_.data_offset + offset, bytes,
                 pause);
}

void GroupTransport::signal(int peer, std::uint32_t slot, std::uint64_t value) {
  flag(peer, rank_, slot).store(value, std::memory_order_release);
  ring(peer);
}

std::uint64_t GroupTransport::signalled(int peer, std::uint32_t slot) const {
  return flag(rank_, peer, slot).load(std::memory_order_acquire);
}

std::uint64_t GroupTransport::arrive(int owner, std::uint32_t counter) {
  return counter_word(owner, counter).fetch_add(1, std::memory_order_acq_rel) + 1;
}

std::uint64_t GroupTransport::counter(int owner, std::uint32_t counter) const {
  return counter_word(owner, counter).load(std::memory_order_acquire);
}

void GroupTransport::set_counter(std::uint32_t counter, std::uint64_t value) {
  counter_word(rank_, counter).store(value, std::memory_order_release);
}

std::byte* GroupTransport::part_of(int peer) const {
  check(is_mapped(peer), "rank is not on this node");
  return at(parts_, peer);
}

std::atomic<std::uint64_t>& GroupTransport::flag(int owner, int writer, std::uint32_t slot) const {
  check(is_mapped(writer) && slot < limits_.flags_per_peer, "flag slot out of range");
  const std::size_t index =
      static_cast<std::size_t>(at(locals_, writer)) * limits_.flags_per_peer + slot;
  return reinterpret_cast<std::atomic<std::uint64_t>*>(part_of(owner))[index];
}

std::atomic<std::uint64_t>& GroupTransport::counter_word(int owner, std::uint32_t counter) const {
  check(counter < limits_.counters, "counter out of range");
  std::byte* const words = part_of(owner) + layout_.counters_offset;
  return reinterpret_cast<std::atomic<std::uint64_t>*>(words)[counter];
}

}  // namespace kolo
