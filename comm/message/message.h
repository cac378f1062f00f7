#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/base/aligned_memory.h"
#include "comm/base/buffer_view.h"
#include "comm/base/error.h"
#include "comm/device/stream.h"
#include "comm/message/received.h"
#include "comm/transport/transport.h"

namespace kolo {

/// One call that sends or receives. `Messages` calls exactly one of `complete` and `fail`, once,
/// when it no longer uses the buffers.
class Message {
 public:
  enum class Kind : std::uint8_t { kSend, kReceive };

  Message() = default;
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;
  virtual ~Message() = default;

  virtual void complete() noexcept = 0;
  virtual void fail(const Error& error) noexcept = 0;
  /// Whether a thread of the program waits for this call now.
  virtual bool is_awaited() const = 0;

  /// Describes the call: "a receive from rank 1 with tag 5".
  std::string describe() const;
  /// Sets the buffers of the message, at least one.
  void set_parts(std::span<const BufferView> all);
  /// The buffers of the message.
  std::span<const BufferView> parts() const;
  /// The total size of all buffers in bytes.
  std::size_t bytes() const;
  MemoryKind memory() const { return parts().front().memory; }

  Kind kind = Kind::kSend;
  int peer = kAnyRank;
  std::uint64_t tag = 0;
  BufferView buffer = {};
  /// The tensors of a grouped message, in one kind of memory. If not empty, `buffer` is unused.
  std::vector<BufferView> tensors = {};
  /// Event after the caller's work on buffers in device memory, or null if this work is done.
  std::shared_ptr<const Event> ready = {};
  Received received = {};     ///< Result of a completed receive.
  Completion transfer = {};   ///< Completion of the data message.
  AlignedMemory packed = {};  ///< Elements in transfer, if the tensors are not contiguous.
};

}  // namespace kolo
