#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/base/buffer_view.h"
#include "comm/base/mutex.h"
#include "comm/base/native_stream.h"
#include "comm/device/device.h"
#include "comm/message/message.h"
#include "runtime/buckets/ticket_state.h"

namespace kolo {

/// A message that a user's thread sends or receives, and its ticket.
class MessageCall final : public Message, public TicketState {
 public:
  void complete() noexcept override { TicketState::complete(); }
  void fail(const Error& error) noexcept override { TicketState::fail(error); }
  bool is_awaited() const override { return waiters() > 0 || is_watched(); }
  std::string subject() const override { return describe(); }
};

/// A pool of finished messages, so that calls allocate little. Threads: any.
class MessagePool {
 public:
  std::shared_ptr<MessageCall> take() KOLO_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (unused_.empty()) return std::make_shared<MessageCall>();
    std::shared_ptr<MessageCall> call = std::move(unused_.back());
    unused_.pop_back();
    return call;
  }

  /// Takes a finished call back. Precondition: the call is done, and no other object uses it.
  void give_back(std::shared_ptr<MessageCall> call) KOLO_EXCLUDES(mutex_) {
    call->reset();
    call->ready = nullptr;
    const MutexLock lock(mutex_);
    if (unused_.size() < kMost) unused_.push_back(std::move(call));
  }

 private:
  /// Most unused calls in the pool: as many as threads are likely to call at the same time.
  static constexpr std::size_t kMost = 16;

  Mutex mutex_;
  std::vector<std::shared_ptr<MessageCall>> unused_ KOLO_GUARDED_BY(mutex_);
};

/// Makes messages from the send and receive calls of users' threads, and checks the arguments.
/// `Group` documents the contracts. Threads: any. Errors: UsageError.
class MessageCalls {
 public:
  /// `pool` and `device` must outlive this object. `device` is null if there is none.
  MessageCalls(MessagePool& pool, Device* device, int world_size)
      : pool_(pool), device_(device), world_size_(world_size) {}

  /// Makes a message of `buffers`, which has at least one buffer.
  std::shared_ptr<MessageCall> make(Message::Kind kind, const Buffers& buffers, int peer,
                                    std::uint64_t tag, NativeStream stream) const;

 private:
  void check_call(Message::Kind kind, const Buffers& buffers, int peer) const;

  MessagePool& pool_;
  Device* const device_;
  const int world_size_;
};

}  // namespace kolo
