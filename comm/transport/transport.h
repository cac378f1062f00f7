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

/// State of one message in flight. The caller owns it, and keeps both it and the buffer alive and
/// in place until `state` is no longer `kPending`.
struct Completion {
  enum class State : std::uint8_t { kIdle, kPending, kDone };
  State state = State::kIdle;
  std::size_t bytes = 0;  ///< Bytes received (for receives).
};

/// A message of the coordinator.
struct ControlFrame {
  int peer = -1;  ///< Sender.
  std::vector<std::byte> bytes;
};

/// Payload bytes by direction, for data and control separately.
struct TrafficCounters {
  std::uint64_t data_sent = 0;
  std::uint64_t data_received = 0;
  std::uint64_t control_sent = 0;
  std::uint64_t control_received = 0;
  std::uint64_t control_frames_sent = 0;
};

/// Messages between the ranks of a job: the operations that a network supports.
///
/// Threads: the one that drives the engine makes all calls.
/// Errors:  `poll` and the data calls never throw; the first failure of a peer is kept and returned
///          by `failure()`. Pending operations then stay pending until `shutdown`.
class MessageTransport {
 public:
  virtual ~MessageTransport() = default;

  virtual int rank() const = 0;
  virtual int world_size() const = 0;

  // --- Messages -------------------------------------------------------------------------------

  /// Whether messages may be in device memory (MemoryKind::kDevice), in both directions. Host and
  /// pinned memory are always supported.
  virtual bool takes_device_memory() const { return false; }

  /// A hint that messages will often use this memory, which stays mapped until after `shutdown`.
  virtual void expect_messages_in(std::span<std::byte> /*memory*/) {}

  /// Starts sending `data` to `peer`; `done` becomes kDone when the buffer may be reused.
  virtual void isend(int peer, const Tag& tag, std::span<const std::byte> data,
                     Completion& done) = 0;

  /// Starts receiving the message with exactly this tag from `peer` into `data`. A message longer
  /// than `data` is a failure of the transport (kInternal); for a shorter one, `done.bytes` is its
  /// length.
  virtual void irecv(int peer, const Tag& tag, std::span<std::byte> data, Completion& done) = 0;

  /// Declares that from this iteration on messages of this bucket, with any source and ordinal, are
  /// not received: `shutdown` does not report them. Operations in flight continue.
  virtual void abandon(const Tag& first) = 0;

  /// Cancels a message in flight: `done` becomes kIdle. Returns whether `done` and the buffer are
  /// no longer used; a message that cannot be cancelled stays in flight, at the latest until
  /// `shutdown`.
  virtual bool cancel(Completion& done) { return done.state != Completion::State::kPending; }

  /// Sends a control frame. Frames between two ranks arrive in order, and never wait for data
  /// messages. The bytes are copied or sent before the call returns.
  virtual void send_control(int peer, std::span<const std::byte> bytes) = 0;

  /// Takes one arrived control frame, if there is one. The capacity of `frame.bytes` is reused.
  virtual bool receive_control(ControlFrame& frame) = 0;

  // --- Progress -------------------------------------------------------------------------------

  /// Makes progress. Returns whether anything happened.
  virtual bool poll() = 0;

  /// Makes every ring between `arm` and `disarm` turn one of `wake_fds` readable. Returns false if
  /// something has arrived and the caller must poll instead of waiting. Also returns false on the
  /// first of several calls: the caller then polls, checks its flags and counters, and calls again.
  /// Call `disarm` after sleeping.
  virtual bool arm() = 0;
  virtual void disarm() = 0;
  /// Constant until `shutdown`.
  virtual std::vector<int> wake_fds() const = 0;

  // --- Life and death -------------------------------------------------------------------------

  /// The first failure noticed, if any.
  virtual std::optional<Error> failure() const = 0;

  /// Announces that this rank leaves after a failure that all ranks are being told of, so that
  /// peers do not report its `shutdown` as another failure. Best effort.
  virtual void say_goodbye() = 0;

  /// Cancels everything in flight (pending completions become kIdle), tells mapped and connected
  /// peers that this rank has gone, and releases whatever peers could wait for. `orderly`: this is
  /// an agreed end, which peers do not report as a failure; a message that has arrived by then
  /// without being received is a failure (kInternal). Idempotent.
  virtual void shutdown(bool orderly) = 0;

  virtual TrafficCounters traffic(int peer) const = 0;
};

/// Messages over a network, between ranks that first exchange their addresses.
class NetworkTransport : public MessageTransport {
 public:
  /// Address of this rank for the other ranks; opaque bytes.
  virtual std::string address() const = 0;

  /// Sets the addresses of all ranks, by rank. Call once, before any message.
  virtual void connect(std::vector<std::string> addresses) = 0;
};

/// The connection of one rank to its peers: messages to any peer; shared memory and flags with
/// peers of the same node ("mapped" peers, which always include this rank itself).
///
/// Threads: the one that drives the engine makes all calls, except `ring(rank())`, `memory`,
///          `commit`, `post_error` and `note_stuck`, which any thread of the process may make.
class Transport : public MessageTransport {
 public:
  virtual bool is_mapped(int peer) const = 0;

  /// The data region of a mapped peer's arena, as mapped in this process.
  virtual std::span<std::byte> memory(int peer) = 0;

  /// All of this rank's memory that mapped peers can read, including `memory(rank())`; peers see it
  /// at the same distance from `memory(rank())`.
  virtual std::span<const std::byte> shared_memory() { return memory(rank()); }

  /// Whether all mapped peers can read and write memory of this process outside its arena. False
  /// until they have confirmed it; then it stays true.
  virtual bool is_open_to_peers() = 0;
  /// Whether peers can access this private memory of this rank at full bandwidth, which requires
  /// huge pages: the system looks up each page, which for small pages takes longer than copying
  /// them. True where the system does not report page sizes.
  virtual bool is_in_huge_pages(std::span<const std::byte> memory) = 0;
  /// Copies from private memory of a mapped peer that is open to its peers; `address` is valid in
  /// the peer's process. Threads: any. Errors: KoloError(kPeerLost).
  virtual void read_memory(int peer, std::uint64_t address, std::span<std::byte> to) = 0;
  /// As `read_memory`, in the other direction.
  virtual void write_memory(int peer, std::uint64_t address, std::span<const std::byte> from) = 0;

  /// Commits memory for a range of this rank's own arena, so that accesses cannot fail later. Many
  /// GB can take seconds, in which `pause` is called repeatedly. Threads: any. Errors:
  /// KoloError(kResources) with the bytes needed and the limit.
  virtual void commit(std::size_t offset, std::size_t bytes, const Pause& pause = {}) = 0;

  /// Sets this rank's flag `slot` at `peer` to `value` (values only increase) and wakes the peer. A
  /// reader of the value sees this rank's earlier writes.
  virtual void signal(int peer, std::uint32_t slot, std::uint64_t value) = 0;
  /// The last value that `peer` signalled to this rank in `slot`; 0 before the first.
  virtual std::uint64_t signalled(int peer, std::uint32_t slot) const = 0;

  /// Increments a counter in the memory of `owner` and returns the new value. Does not wake the
  /// owner.
  virtual std::uint64_t arrive(int owner, std::uint32_t counter) = 0;
  virtual std::uint64_t counter(int owner, std::uint32_t counter) const = 0;
  /// Sets a counter of this rank. Does not wake other ranks: call `ring`.
  virtual void set_counter(std::uint32_t counter, std::uint64_t value) = 0;

  /// Wakes a mapped peer if it sleeps and waits for something, or this rank itself if it sleeps.
  virtual void ring(int peer) = 0;

  /// For a rank whose driving thread is stuck in a call: mapped peers fail with this error when
  /// they next poll or find this rank gone. Only the first error counts. Before: the transport is
  /// not shut down.
  virtual void post_error(const Error& error) = 0;

  /// For a rank whose driving thread has not returned from a call for a long time: publishes the
  /// verb, of at most 8 characters, to mapped peers. Empty: it has returned. Does not wake peers.
  virtual void note_stuck(std::string_view verb) = 0;
  /// The verb in which a mapped peer is stuck, if it has published one; otherwise empty.
  virtual std::string stuck_in(int peer) const = 0;

  // --- Sleep ----------------------------------------------------------------------------------

  /// As `arm`, for a rank that waits for no operation: control frames and its own ring wake it;
  /// flags, counters and data do not, and are seen at its next poll.
  virtual bool arm_idle() = 0;
  /// Undoes `arm` or `arm_idle` for a caller that has not slept, without a system call. `wake_fds`
  /// may stay readable and wake the next sleeper once too often.
  virtual void unarm() = 0;
  /// Sleeps until polling is due: after a ring or an arrival, or when `limit` has passed. Returns
  /// false, without sleeping, in the same cases as `arm`; the caller must then poll and check flags
  /// and counters.
  virtual bool sleep(Duration limit) = 0;
};

/// Capacities, equal on all ranks of a job or group.
struct TransportLimits {
  std::size_t arena_bytes = std::size_t{16} << 30;  ///< Address space; memory is committed on use.
  std::uint32_t flags_per_peer = 1U << 16;
  std::uint32_t counters = 1U << 14;
  /// Number of buckets, each with two counters; the last bucket is used for messages between two
  /// ranks.
  std::uint32_t buckets = 1U << 12;
};

}  // namespace kolo
