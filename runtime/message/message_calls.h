#pragma once

#include <cstdint>
#include <memory>

#include "comm/base/buffer_view.h"
#include "comm/base/native_stream.h"
#include "comm/device/device.h"
#include "runtime/message/message_call.h"
#include "runtime/message/message_pool.h"

namespace kolo {

/// Makes messages of the calls of users' threads that send and receive, whose arguments it checks.
/// The contracts are those of `Group`. Threads: any. Errors: UsageError.
class MessageCalls {
 public:
  /// `pool` and `device` outlive it. `device`: null without one.
  MessageCalls(MessagePool& pool, Device* device, int world_size)
      : pool_(pool), device_(device), world_size_(world_size) {}

  /// A message of these buffers, at least one.
  std::shared_ptr<MessageCall> make(Message::Kind kind, const Buffers& buffers, int peer,
                                    std::uint64_t tag, NativeStream stream) const;

 private:
  void check_call(Message::Kind kind, const Buffers& buffers, int peer) const;

  MessagePool& pool_;
  Device* const device_;
  const int world_size_;
};

}  // namespace kolo
