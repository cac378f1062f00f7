#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "comm/base/buffer_view.h"
#include "comm/base/mutex.h"
#include "comm/base/native_stream.h"
#include "comm/device/device.h"
#include "runtime/engine/engine.h"
#include "runtime/message/message_call.h"
#include "runtime/wait/driver.h"

namespace kolo {

/// The calls of users' threads that send and receive: checks arguments, submits messages to the
/// engine and waits for them. The contracts are those of `Runtime`. Threads: any.
class MessageCalls {
 public:
  /// `engine` and `device` outlive it. `device`: null without one. `limit` is that of each wait.
  MessageCalls(Engine& engine, std::shared_ptr<Driver> driver, Device* device, int world_size,
               std::shared_ptr<const WaitLimit> limit);

  using Call = std::shared_ptr<MessageCall>;

  /// Begins to send or receive one message, whose buffers are `tensors`, at least one.
  Call begin(Message::Kind kind, std::span<const BufferView> tensors, int peer, std::uint64_t tag,
             NativeStream stream);
  /// The same, and waits until it is done.
  Received run(Message::Kind kind, std::span<const BufferView> tensors, int peer, std::uint64_t tag,
               NativeStream stream);

 private:
  /// As many as threads that are likely to call at the same time.
  static constexpr std::size_t kMostUnused = 16;

  void check_call(Message::Kind kind, std::span<const BufferView> tensors, int peer) const;
  Call start(Message::Kind kind, std::span<const BufferView> tensors, int peer, std::uint64_t tag,
             NativeStream stream);
  Call take_unused() KOLO_EXCLUDES(mutex_);
  void give_back(Call call) KOLO_EXCLUDES(mutex_);

  Engine& engine_;
  const std::shared_ptr<Driver> driver_;
  Device* const device_;
  const int world_size_;
  const std::shared_ptr<const WaitLimit> limit_;
  Mutex mutex_;
  std::vector<Call> unused_ KOLO_GUARDED_BY(mutex_);  // so that blocking calls allocate nothing
};

}  // namespace kolo
