#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/base/clock.h"
#include "comm/base/error.h"
#include "comm/transport/tag.h"

namespace kolo {

/// The state of one message in flight. The caller must not move or destroy it, or the message's
/// buffer, while `state` is `kPending`.
struct Completion {
  enum class State : std::uint8_t { kIdle, kPending, kDone };
  State state = State::kIdle;
  std::size_t bytes = 0;  ///< Number of bytes received; set for receives only.
};

/// A message of the coordinator.
struct ControlFrame {
  int peer = -1;  ///< The rank that sent it.
  std::vector<std::byte> bytes;
};

/// Bytes sent and received, without headers.
struct TrafficCounters {
  std::uint64_t data_sent = 0;
  std::uint64_t data_received = 0;
  std::uint64_t control_sent = 0;
  std::uint64_t control_received = 0;
  std::uint64_t control_frames_sent = 0;
};

/// Messages between the ranks of a job: the operations that every network supports.
///
/// Threads: only the thread that drives the engine calls it.
/// Errors:  `poll` and the data calls never throw. `failure()` returns the first failure of a peer.
///          After a failure, pending operations stay pending until `shutdown`.
class MessageTransport {
 public:
  virtual ~MessageTransport() = default;

  virtual int rank() const = 0;
  virtual int world_size() const = 0;

  // --- Messages -------------------------------------------------------------------------------

  /// Whether messages may be sent from and received to device memory (MemoryKind::kDevice). Host
  /// and pinned memory are always supported.
  virtual bool takes_device_memory() const { return false; }

  /// A hint that messages will often use this memory, which must stay mapped until `shutdown`.
  virtual void expect_messages_in(std::span<std::byte> /*memory*/) {}

  /// Starts sending `data` to `peer`. `done` becomes kDone when the buffer may be reused.
  virtual void isend(int peer, const Tag& tag, std::span<const std::byte> data,
                     Completion& done) = 0;

  /// Starts receiving the message with exactly this tag from `peer` into `data`. A message longer
  /// than `data` is a failure of the transport (kInternal). `done.bytes` is its length.
  virtual void irecv(int peer, const Tag& tag, std::span<std::byte> data, Completion& done) = 0;

  /// Declares that messages of this bucket are not received from this iteration on, whatever their
  /// source and ordinal, so `shutdown` does not report them. Operations in flight continue.
  virtual void abandon(const Tag& first) = 0;

  /// Cancels a message in flight: `done` becomes kIdle. Returns true if `done` and the buffer are
  /// no longer used. A message that cannot be cancelled stays in flight until it completes, or
  /// until `shutdown`.
  virtual bool cancel(Completion& done) { return done.state != Completion::State::kPending; }

  /// Sends a control frame. Frames between two ranks are received in order, and never wait for data
  /// messages. The bytes are copied or sent before the call returns.
  virtual void send_control(int peer, std::span<const std::byte> bytes) = 0;

  /// Takes one received control frame, if there is one. Reuses the capacity of `frame.bytes`.
  virtual bool receive_control(ControlFrame& frame) = 0;

  // --- Progress -------------------------------------------------------------------------------

  /// Makes progress without waiting. Returns whether anything changed.
  virtual bool poll() = 0;

  /// Prepares to sleep: until `disarm`, each ring makes one of `wake_fds` readable. Returns false
  /// if something was received that the caller must poll first. Also returns false on the first
  /// call after a poll with news: the caller then polls, checks its flags and counters, and calls
  /// again. Call `disarm` after sleeping.
  virtual bool arm() = 0;
  virtual void disarm() = 0;
  /// Returns the descriptors to wait for; they do not change until `shutdown`.
  virtual std::vector<int> wake_fds() const = 0;

  // --- End --------------------------------------------------------------------------------------

  /// Returns the first failure, if any.
  virtual std::optional<Error> failure() const = 0;

  /// Announces that this rank leaves after a failure that is being reported to all ranks, so that
  /// peers do not report its `shutdown` as another failure. Best effort.
  virtual void say_goodbye() = 0;

  /// Cancels everything in flight (pending completions become kIdle), tells mapped and connected
  /// peers that this rank has ended, and releases everything that peers could wait for. `orderly`
  /// means an agreed end, which peers do not report as a failure; a message that was sent to this
  /// rank and has no receive is then a failure (kInternal). Idempotent.
  virtual void shutdown(bool orderly) = 0;

  virtual TrafficCounters traffic(int peer) const = 0;
};

/// Messages over a network between ranks that first exchange their addresses.
class NetworkTransport : public MessageTransport {
 public:
  /// Returns the address of this rank for the other ranks, as opaque bytes.
  virtual std::string address() const = 0;

  /// Sets the addresses of all ranks, indexed by rank. Call it once, before any message.
  virtual void connect(std::vector<std::string> addresses) = 0;
};

/// Connects one rank to its peers: messages to any peer; shared memory and flags with "mapped"
/// peers, which are the ranks of the same node including this rank.
///
/// Threads: only the thread that drives the engine calls it, except for `ring(rank())`, `memory`,
/// `commit`, `post_error` and `note_stuck`, which any thread of the process may call.
class Transport : public MessageTransport {
 public:
  virtual bool is_mapped(int peer) const = 0;

  /// Returns the data region of a mapped peer's arena, as mapped in this process.
  virtual std::span<std::byte> memory(int peer) = 0;

  /// Returns all of this rank's memory that mapped peers can read; it includes `memory(rank())`.
  /// Offsets from `memory(rank())` are equal in all processes.
  virtual std::span<const std::byte> shared_memory() { return memory(rank()); }

  /// Whether all mapped peers can read and write memory of this process outside its arena. False
  /// until all have confirmed it; then it stays true.
  virtual bool is_open_to_peers() = 0;
  /// Whether peers can access this private memory of this rank at full bandwidth. This requires
  /// huge pages, because the system looks up each page, and for a small page that takes longer than
  /// the copy. True if the system does not report page sizes.
  virtual bool is_in_huge_pages(std::span<const std::byte> memory) = 0;
  /// Copies private memory of a mapped peer to `to`. `address` is an address in the peer's process,
  /// whose `is_open_to_peers` is true. Threads: any. Errors: KoloError(kPeerLost).
  virtual void read_memory(int peer, std::uint64_t address, std::span<std::byte> to) = 0;
  /// Copies `from` to private memory of a mapped peer; otherwise as `read_memory`.
  virtual void write_memory(int peer, std::uint64_t address, std::span<const std::byte> from) = 0;

  /// Commits memory for a range of this rank's arena, so that later accesses cannot fail. Many GB
  /// can take seconds; `pause` is called repeatedly meanwhile. Threads: any. Errors:
  /// KoloError(kResources) with the bytes needed and the limit.
  virtual void commit(std::size_t offset, std::size_t bytes, const Pause& pause = {}) = 0;

  /// Sets this rank's flag `slot` at `peer` to `value` and wakes the peer. Values of a flag only
  /// increase. A reader that sees the value also sees this rank's earlier writes.
  virtual void signal(int peer, std::uint32_t slot, std::uint64_t value) = 0;
  /// Returns the last value of flag `slot` that `peer` signalled to this rank; 0 before the first.
  virtual std::uint64_t signalled(int peer, std::uint32_t slot) const = 0;

  /// Increments a counter in the memory of `owner`, returns the new value and does not wake
  /// `owner`.
  virtual std::uint64_t arrive(int owner, std::uint32_t counter) = 0;
  virtual std::uint64_t counter(int owner, std::uint32_t counter) const = 0;
  /// Sets a counter in this rank's memory. Does not wake other ranks: call `ring`.
  virtual void set_counter(std::uint32_t counter, std::uint64_t value) = 0;

  /// Wakes a mapped peer that sleeps and waits for something, or this rank itself if it sleeps.
  virtual void ring(int peer) = 0;

  /// Posts an error for mapped peers, from a rank whose driving thread is stuck in a call: peers
  /// fail with it at their next poll, or when they find that this rank has ended. Only the first
  /// error counts. Before: the transport is not shut down.
  virtual void post_error(const Error& error) = 0;

  /// Publishes to mapped peers the verb in which this rank's driving thread has been stuck for a
  /// long time, at most 8 characters. An empty verb means that the call has returned. Wakes no
  /// peer.
  virtual void note_stuck(std::string_view verb) = 0;
  /// Returns the verb in which a mapped peer is stuck; empty if it has published none.
  virtual std::string stuck_in(int peer) const = 0;

  // --- Sleep ----------------------------------------------------------------------------------

  /// As `arm`, for a rank that waits for no operation: only control frames and rings of its own
  /// threads wake it. It sees flags, counters and data at its next poll.
  virtual bool arm_idle() = 0;
  /// Undoes `arm` or `arm_idle` for a caller that has not slept, without a system call. One of
  /// `wake_fds` may stay readable, so the next sleep may end too early.
  virtual void unarm() = 0;
  /// Sleeps until a ring, until something is received, or until `limit` has passed. Returns false,
  /// without sleeping, in the same cases as `arm`; the caller must then poll and check its flags.
  virtual bool sleep(Duration limit) = 0;
};

/// Capacities of a transport, equal on all ranks of a job or group.
struct TransportLimits {
  std::size_t arena_bytes = std::size_t{16} << 30;  ///< Address space; `commit` allocates memory.
  std::uint32_t flags_per_peer = 1U << 16;
  std::uint32_t counters = 1U << 14;
  /// Number of buckets, with two counters each. Messages between two ranks use the last one.
  std::uint32_t buckets = 1U << 12;
};

}  // namespace kolo
