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

/// One call that sends or receives. `Messages` answers it exactly once: with `complete` when its
/// buffer belongs to the caller again, or with `fail`.
class Message {
 public:
  enum class Kind : std::uint8_t { kSend, kReceive };

  Message() = default;
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;
  virtual ~Message() = default;

  virtual void complete() noexcept = 0;
  virtual void fail(const Error& error) noexcept = 0;
  /// Whether the program waits for it now.
  virtual bool is_awaited() const = 0;

  /// "a receive from rank 1 with tag 5".
  std::string describe() const;
  /// Sets the buffers of its tensors, at least one.
  void set_parts(std::span<const BufferView> all);
  /// The buffers of all its tensors.
  std::span<const BufferView> parts() const;
  /// The total size of its tensors.
  std::size_t bytes() const;
  MemoryKind memory() const { return parts().front().memory; }

  Kind kind = Kind::kSend;
  int peer = kAnyRank;
  std::uint64_t tag = 0;
  BufferView buffer = {};
  /// The tensors of a grouped message, in memory of one kind; `buffer` is then unused.
  std::vector<BufferView> tensors = {};
  /// Device memory: event after the caller's work on the buffers; null if that work is done.
  std::shared_ptr<const Event> ready = {};
  Received received = {};     ///< Result of a completed receive.
  Completion transfer = {};   ///< Completion of its data message.
  AlignedMemory packed = {};  ///< Holds its elements during the transfer if its tensors are not
                              ///< contiguous.
};

}  // namespace kolo
