#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "comm/transport/control_frames.h"
#include "comm/transport/forwarding_transport.h"

namespace kolo {

/// The resources of a group at one of its members. Each member chooses them independently.
struct GroupPlace {
  ControlDemux::Number inbox = 0;  ///< Inbox for control frames.
  std::uint32_t first_bucket = 0;  ///< First bucket number in tags to this member.
  std::uint64_t arena_offset = 0;  ///< Start of the group's part; page-aligned.

  friend bool operator==(const GroupPlace&, const GroupPlace&) = default;
};

/// Layout of a group's part of a member's arena:
///
///   flags [writer][slot] | counters | data
///                                   ^ page
/// `writer` is the index of a member among the members on its node.
struct GroupLayout {
  std::size_t counters_offset = 0;
  std::size_t data_offset = 0;
  std::size_t total_bytes = 0;

  /// `local_size` is the number of members on this node. The layout is equal on all ranks of a
  /// node.
  GroupLayout(const TransportLimits& limits, std::size_t local_size);
};

/// The members of a group, with their places.
struct GroupMembers {
  std::vector<int> ranks;          ///< Ranks of the job, by rank in the group.
  std::vector<GroupPlace> places;  ///< Places, by rank in the group.
};

/// The transport of a group, with ranks of the group, on top of the job's transport. It shares
/// connections, mapped memory and doorbells with the job. Flags and counters are in the group's
/// part of the arena. So a group needs no additional descriptor, thread or connection.
///
/// Only the job's transport makes progress, for all groups; `poll` of this class does nothing.
///
/// Errors: `failure()` is the failure of the job's transport and names ranks of the job.
class GroupTransport final : public ForwardingTransport {
 public:
  /// `job` and `inbox` must outlive this object. The ControlDemux puts the frames of this group
  /// into `inbox`.
  /// Before: this rank is a member and has called `clear`.
  GroupTransport(Transport& job, GroupMembers members, const TransportLimits& limits,
                 ControlInbox& inbox);

  /// Commits the memory of a group's flags and counters on this rank, and sets it to zero. Call it
  /// before peers know the group's place. Errors: KoloError(kResources).
  static void clear(Transport& job, std::uint64_t arena_offset, const GroupLayout& layout);

  int rank() const override { return rank_; }
  int world_size() const override { return static_cast<int>(members_.ranks.size()); }

  void isend(int peer, const Tag& tag, std::span<const std::byte> data, Completion& done) override;
  void irecv(int peer, const Tag& tag, std::span<std::byte> data, Completion& done) override;
  void abandon(const Tag& first) override;
  void send_control(int peer, std::span<const std::byte> bytes) override;
  bool receive_control(ControlFrame& frame) override;

  bool is_mapped(int peer) const override { return at(locals_, peer) >= 0; }
  std::span<std::byte> memory(int peer) override;
  void read_memory(int peer, std::uint64_t address, std::span<std::byte> to) override {
    below().read_memory(at(members_.ranks, peer), address, to);
  }
  void write_memory(int peer, std::uint64_t address, std::span<const std::byte> from) override {
    below().write_memory(at(members_.ranks, peer), address, from);
  }
  void commit(std::size_t offset, std::size_t bytes, const Pause& pause) override;
  void signal(int peer, std::uint32_t slot, std::uint64_t value) override;
  std::uint64_t signalled(int peer, std::uint32_t slot) const override;
  std::uint64_t arrive(int owner, std::uint32_t counter) override;
  std::uint64_t counter(int owner, std::uint32_t counter) const override;
  void set_counter(std::uint32_t counter, std::uint64_t value) override;
  void ring(int peer) override { below().ring(at(members_.ranks, peer)); }
  std::string stuck_in(int peer) const override {
    return below().stuck_in(at(members_.ranks, peer));
  }

  bool poll() override { return false; }
  /// Does nothing, because the job's transport continues.
  void say_goodbye() override {}
  /// Ignores all later sends and receives. Transfers in progress continue until they are cancelled
  /// or the job's transport shuts down.
  void shutdown(bool) override { closed_ = true; }
  TrafficCounters traffic(int peer) const override {
    return below().traffic(at(members_.ranks, peer));
  }

 private:
  template <typename Value>
  static const Value& at(const std::vector<Value>& values, int peer) {
    return values.at(static_cast<std::size_t>(peer));
  }
  Tag tag_at(int member, int source, const Tag& tag) const;
  std::byte* part_of(int peer) const;
  std::atomic<std::uint64_t>& flag(int owner, int writer, std::uint32_t slot) const;
  std::atomic<std::uint64_t>& counter_word(int owner, std::uint32_t counter) const;

  const GroupMembers members_;
  const TransportLimits limits_;
  ControlInbox& inbox_;
  ForeignFrames foreign_;
  int rank_ = -1;
  std::vector<int> locals_;        // index among the members on this node, by rank; or -1
  std::vector<std::byte*> parts_;  // the group's part of the arena, by rank; null if not mapped
  GroupLayout layout_;
  std::vector<std::byte> framed_;
  bool closed_ = false;
};

}  // namespace kolo
