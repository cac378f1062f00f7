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

/// One call that sends or receives. `Messages` answers it once: with `complete` when its buffer is
/// the caller's again, or with `fail`.
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
  /// The bytes of all its tensors together.
  std::size_t bytes() const;
  MemoryKind memory() const { return parts().front().memory; }

  Kind kind = Kind::kSend;
  int peer = kAnyRank;
  std::uint64_t tag = 0;
  BufferView buffer = {};
  /// A grouped message has several, in memory of one kind, and no `buffer`.
  std::vector<BufferView> tensors = {};
  /// Device memory: behind what the caller's stream does to it; null when that is done.
  std::shared_ptr<const Event> ready = {};
  Received received = {};     ///< Of a receive that is complete.
  Completion transfer = {};   ///< Of its data message.
  AlignedMemory packed = {};  ///< Its elements meanwhile, if its tensors lie here and there.
};

}  // namespace kolo
