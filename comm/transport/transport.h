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

/// State of one message in flight. The caller owns it and keeps it, and the buffer, alive and in
/// place until `state` is no longer `kPending`.
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

/// Payload bytes by direction, data and control apart.
struct TrafficCounters {
  std::uint64_t data_sent = 0;
  std::uint64_t data_received = 0;
  std::uint64_t control_sent = 0;
  std::uint64_t control_received = 0;
  std::uint64_t control_frames_sent = 0;
};

/// Messages between the ranks of a job: what a network can do.
///
/// Threads: one at a time, the one that drives the engine, calls everything.
/// Errors:  nothing throws from `poll` or the data calls; the first failure of a peer is kept and
///          returned by `failure()`. Pending operations then stay pending until `shutdown`.
class MessageTransport {
 public:
  virtual ~MessageTransport() = default;

  virtual int rank() const = 0;
  virtual int world_size() const = 0;

  // --- Messages -------------------------------------------------------------------------------

  /// Whether messages may lie in device memory (MemoryKind::kDevice), in both directions. Data of
  /// the host and pinned memory are always taken.
  virtual bool takes_device_memory() const { return false; }

  /// Messages will come from and go to this memory often; it stays mapped until after `shutdown`.
  /// A hint.
  virtual void expect_messages_in(std::span<std::byte> /*memory*/) {}

  /// Starts sending `data` to `peer`; `done` becomes kDone when the buffer may be reused.
  virtual void isend(int peer, const Tag& tag, std::span<const std::byte> data,
                     Completion& done) = 0;

  /// Starts receiving the message with exactly this tag from `peer` into `data`. A message longer
  /// than `data` is a failure of the transport (kInternal); `done.bytes` tells a shorter one.
  virtual void irecv(int peer, const Tag& tag, std::span<std::byte> data, Completion& done) = 0;

  /// From this iteration on nobody receives messages of this bucket, with any source and ordinal:
  /// `shutdown` does not report them. Operations in flight go on.
  virtual void abandon(const Tag& first) = 0;

  /// Gives up a message in flight: `done` becomes kIdle. Returns whether nothing touches it and the
  /// buffer any more; what cannot be given up stays in flight, at the latest until `shutdown`.
  virtual bool cancel(Completion& done) { return done.state != Completion::State::kPending; }

  /// Sends a control frame. Frames between two ranks arrive in order, and never wait for data
  /// messages. The bytes are copied or sent before the call returns.
  virtual void send_control(int peer, std::span<const std::byte> bytes) = 0;

  /// Takes one arrived control frame, if there is one. `frame.bytes` is reused, not reallocated,
  /// where its capacity suffices.
  virtual bool receive_control(ControlFrame& frame) = 0;

  // --- Progress -------------------------------------------------------------------------------

  /// Moves messages on. Returns whether anything happened.
  virtual bool poll() = 0;

  /// Between `arm` and `disarm` every ring makes one of `wake_fds` readable. Returns false if
  /// something has arrived meanwhile and polling is due instead of waiting; and at the first call
  /// of several, after which the caller polls, looks at its flags and counters, and calls again.
  /// `disarm` is for a caller that has slept in between.
  virtual bool arm() = 0;
  virtual void disarm() = 0;
  /// They stay the same until `shutdown`.
  virtual std::vector<int> wake_fds() const = 0;

  // --- Life and death -------------------------------------------------------------------------

  /// The first failure noticed, if any.
  virtual std::optional<Error> failure() const = 0;

  /// This rank is about to leave after a failure that all ranks are being told of: peers report its
  /// `shutdown` as no failure of its own. Best effort.
  virtual void say_goodbye() = 0;

  /// Cancels everything in flight (pending completions become kIdle), lets mapped and connected
  /// peers know that this rank has gone, and releases what peers could wait for. `orderly` says
  /// that this is an agreed end, which peers do not report as a failure; a message that has arrived
  /// by then and that nobody received is one (kInternal). Idempotent.
  virtual void shutdown(bool orderly) = 0;

  virtual TrafficCounters traffic(int peer) const = 0;
};

/// Messages over a network, to ranks whose addresses are told to each other first.
class NetworkTransport : public MessageTransport {
 public:
  /// What the others need to know to reach this rank; opaque bytes.
  virtual std::string address() const = 0;

  /// Takes the addresses of all ranks, by rank, once, before any message.
  virtual void connect(std::vector<std::string> addresses) = 0;
};

/// How one rank reaches its peers: messages to any peer; shared memory and flags with
/// peers of the same node ("mapped" peers, which always include this rank itself).
///
/// Threads: one at a time, the one that drives the engine, calls everything, except `ring(rank())`,
///          `memory`, `commit`, `post_error` and `note_stuck`, which any thread of the process may
///          call.
class Transport : public MessageTransport {
 public:
  virtual bool is_mapped(int peer) const = 0;

  /// The data region of a mapped peer's arena, at the address where it is mapped here.
  virtual std::span<std::byte> memory(int peer) = 0;

  /// All of this rank's memory that mapped peers can read, at the same distance from
  /// `memory(rank())` as here; that is a part of it.
  virtual std::span<const std::byte> shared_memory() { return memory(rank()); }

  /// Whether all mapped peers can read and write memory of this process outside its arena. False
  /// until they have said so; then it stays true.
  virtual bool is_open_to_peers() = 0;
  /// Whether peers read and write this private memory of this rank at the rate of its bytes: it is
  /// in huge pages. The system looks up each page, which for small ones takes longer than to copy
  /// them. True where the system does not tell.
  virtual bool is_in_huge_pages(std::span<const std::byte> memory) = 0;
  /// Copies from memory of a mapped peer that is open to its peers: `address` is the peer's.
  /// Threads: any. Errors: KoloError(kPeerLost).
  virtual void read_memory(int peer, std::uint64_t address, std::span<std::byte> to) = 0;
  /// The reverse, equal in all else.
  virtual void write_memory(int peer, std::uint64_t address, std::span<const std::byte> from) = 0;

  /// Commits memory for a range of this rank's own arena, so that touching it cannot fail later.
  /// That of many GB can take seconds, in which `pause` is called now and then. Threads: any.
  /// Errors: KoloError(kResources) that names the bytes needed and the limit.
  virtual void commit(std::size_t offset, std::size_t bytes, const Pause& pause = {}) = 0;

  /// Sets my flag number `slot` at `peer` to `value` (values only grow) and wakes the peer. What I
  /// wrote before is visible to a reader of the value.
  virtual void signal(int peer, std::uint32_t slot, std::uint64_t value) = 0;
  /// The value that `peer` last signalled to me in `slot`; 0 before the first.
  virtual std::uint64_t signalled(int peer, std::uint32_t slot) const = 0;

  /// Adds one to a counter that lives at `owner` and returns the new value. Wakes nobody.
  virtual std::uint64_t arrive(int owner, std::uint32_t counter) = 0;
  virtual std::uint64_t counter(int owner, std::uint32_t counter) const = 0;
  /// Sets a counter of mine. Wakes nobody: call `ring`.
  virtual void set_counter(std::uint32_t counter, std::uint64_t value) = 0;

  /// Wakes a mapped peer if it sleeps and waits for something, or this rank itself if it sleeps.
  virtual void ring(int peer) = 0;

  /// For a rank whose driving thread is stuck in a call: mapped peers fail with this error, which
  /// is theirs, too, when they poll next or find this rank gone. The first one counts. Before: the
  /// transport is not shut down.
  virtual void post_error(const Error& error) = 0;

  /// For a rank whose driving thread has not come back from a call for long: mapped peers can tell
  /// in which verb that is, of at most 8 characters. Empty: it has come back. Wakes nobody.
  virtual void note_stuck(std::string_view verb) = 0;
  /// The verb in which a mapped peer is stuck, if it has said so.
  virtual std::string stuck_in(int peer) const = 0;

  // --- Sleep ----------------------------------------------------------------------------------

  /// `arm` for a rank that waits for nothing: control frames and its own ring wake it, flags,
  /// counters and data do not. They are seen when it next polls.
  virtual bool arm_idle() = 0;
  /// Takes `arm` or `arm_idle` back for a caller that has not slept: no system call. What makes
  /// `wake_fds` readable may be left over and wake the next sleeper for nothing.
  virtual void unarm() = 0;
  /// Sleeps until polling is due: somebody rang or something arrived, or `limit` has passed.
  /// Returns false where `arm` would: polling is due, at flags and counters, too, before it sleeps.
  virtual bool sleep(Duration limit) = 0;
};

/// Capacities that all ranks of a job, or of a group, share.
struct TransportLimits {
  std::size_t arena_bytes = std::size_t{16} << 30;  ///< Address space; memory is committed on use.
  std::uint32_t flags_per_peer = 1U << 16;
  std::uint32_t counters = 1U << 14;
  /// Numbers of buckets, each with two counters; the last is that of messages between two ranks.
  std::uint32_t buckets = 1U << 12;
};

}  // namespace kolo
