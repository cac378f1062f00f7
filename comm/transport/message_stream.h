#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "comm/transport/byte_ring.h"
#include "comm/transport/transport.h"

namespace kolo {

/// What precedes each message in a byte ring.
struct MessageHeader {
  std::uint64_t tag = 0;
  std::uint64_t bytes = 0;
};

/// Sends messages one after the other through a byte ring, in pieces as room permits: a message may
/// be larger than the ring. Threads: one.
class MessageWriter {
 public:
  explicit MessageWriter(ByteRing ring) : ring_(ring) {}

  /// Queues a message; the bytes stay the caller's until `done` says so.
  void push(std::uint64_t tag, std::span<const std::byte> data, Completion& done);

  /// Queues a message whose bytes are copied unless they fit into the ring at once.
  void push_copy(std::span<const std::byte> data);

  /// Writes what there is room for; returns whether anything was written, so that the reader must
  /// be rung. Where room is missing the reader is asked to ring back.
  bool pump();

  /// Forgets what is queued and makes its completions idle.
  void cancel() noexcept;

 private:
  struct Outgoing {
    MessageHeader header;
    std::span<const std::byte> data;
    Completion* done = nullptr;
    std::vector<std::byte> copy;
    std::size_t written = 0;  ///< Header included.
  };

  bool write_some(Outgoing& message);

  ByteRing ring_;
  std::vector<Outgoing> queue_;  ///< At most half of it is written.
  std::size_t next_ = 0;         ///< First of the queue that is not yet written.
};

/// Takes messages out of a byte ring piece by piece. Threads: one.
class MessageReader {
 public:
  explicit MessageReader(ByteRing ring) : ring_(ring) {}

  /// Reads at most one ring full. For each message `begin(header)` says where its bytes go (a span
  /// of header.bytes) and `end(header)` follows when they are there.
  /// Returns the bytes taken.
  template <typename Begin, typename End>
  std::size_t read(Begin&& begin, End&& end) {
    std::size_t taken = 0;
    while (taken < ring_.capacity()) {
      if (header_filled_ < sizeof header_) {
        const auto header_bytes = std::as_writable_bytes(std::span(&header_, 1));
        const std::size_t count = ring_.read(header_bytes.subspan(header_filled_));
        header_filled_ += count;
        taken += count;
        if (header_filled_ < sizeof header_) break;
        rest_ = begin(header_);
      }
      const std::size_t count = ring_.read(rest_);
      rest_ = rest_.subspan(count);
      taken += count;
      if (!rest_.empty()) {
        if (count == 0) break;
        continue;
      }
      end(header_);
      header_filled_ = 0;
    }
    return taken;
  }

  ByteRing& ring() { return ring_; }

 private:
  ByteRing ring_;
  MessageHeader header_;
  std::size_t header_filled_ = 0;
  std::span<std::byte> rest_;  ///< Where the rest of the current message goes.
};

}  // namespace kolo
