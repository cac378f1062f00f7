#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "comm/transport/byte_ring.h"
#include "comm/transport/transport.h"

namespace kolo {

/// The header in front of each message in a byte ring.
struct MessageHeader {
  std::uint64_t tag = 0;
  std::uint64_t bytes = 0;
};

/// Writes messages to a byte ring in order, in pieces as room permits. A message may be larger than
/// the ring. Threads: one.
class MessageWriter {
 public:
  explicit MessageWriter(ByteRing ring) : ring_(ring) {}

  /// Queues a message. `data` must stay valid until `done` is complete.
  void push(std::uint64_t tag, std::span<const std::byte> data, Completion& done);

  /// Queues a message. Copies it, unless it fits into the ring at once.
  void push_copy(std::span<const std::byte> data);

  /// Writes as much as there is room for. Returns true if it wrote anything; the caller then rings
  /// the reader. If the ring is full, asks the reader to ring back.
  bool pump();

  /// Whether messages are queued that the ring does not hold completely.
  bool has_queued() const { return next_ < queue_.size(); }

  /// Drops all queued messages and makes their completions idle.
  void cancel() noexcept;

 private:
  struct Outgoing {
    MessageHeader header;
    std::span<const std::byte> data;
    Completion* done = nullptr;
    std::vector<std::byte> copy;
    std::size_t written = 0;  ///< Bytes, including the header.
  };

  bool write_some(Outgoing& message);

  ByteRing ring_;
  std::vector<Outgoing> queue_;  ///< At most half of its messages are written.
  std::size_t next_ = 0;         ///< Index of the first message that is not written.
};

/// Reads messages from a byte ring piece by piece. Threads: one.
class MessageReader {
 public:
  explicit MessageReader(ByteRing ring) : ring_(ring) {}

  /// Reads at most as many bytes as the ring holds. For each message, `begin(header)` returns the
  /// destination of its bytes (a span of header.bytes), and `end(header)` is called when they are
  /// complete. Returns the number of bytes read.
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
  std::span<std::byte> rest_;  ///< Destination of the rest of the current message.
};

}  // namespace kolo
