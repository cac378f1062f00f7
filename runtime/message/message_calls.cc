#include "runtime/message/message_calls.h"

#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "comm/base/check.h"
#include "fusion/overlap.h"

namespace kolo {

MessageCalls::MessageCalls(Engine& engine, std::shared_ptr<Driver> driver, Device* device,
                           int world_size, std::shared_ptr<const WaitLimit> limit)
    : engine_(engine),
      driver_(std::move(driver)),
      device_(device),
      world_size_(world_size),
      limit_(std::move(limit)) {}

MessageCalls::Call MessageCalls::begin(Message::Kind kind, std::span<const BufferView> tensors,
                                       int peer, std::uint64_t tag, NativeStream stream) {
  Call call = start(kind, tensors, peer, tag, stream);
  driver_->attend(Driver::Next::kUnknown);
  return call;
}

/// A call that fails or takes too long is not used again. After a time-out a receive whose message
/// has not come is withdrawn; one whose message is on its way gets it.
Received MessageCalls::run(Message::Kind kind, std::span<const BufferView> tensors, int peer,
                           std::uint64_t tag, NativeStream stream) {
  Call call = start(kind, tensors, peer, tag, stream);
  try {
    call->wait_within(*limit_, driver_.get());
  } catch (const KoloError& e) {
    if (call->kind == Message::Kind::kSend || call->done()) throw;
    engine_.withdraw(call, e.error());
    if (!call->wait(limit_->time, driver_.get())) throw;
  }
  const Received received = call->received;
  give_back(std::move(call));
  return received;
}

void MessageCalls::check_call(Message::Kind kind, std::span<const BufferView> tensors,
                              int peer) const {
  const bool sends = kind == Message::Kind::kSend;
  const auto refuse = [&](const std::string& what) {
    throw UsageError((sends ? "send: " : "recv: ") + what, limit_->group);
  };
  if (tensors.empty()) refuse("there are no tensors");
  const MemoryKind memory = tensors.front().memory;
  if (memory == MemoryKind::kPinned) refuse("pinned memory is host memory; call it that");
  if (memory == MemoryKind::kDevice && device_ == nullptr) {
    refuse("device memory needs a device: set the option `device`, e.g. KOLO_DEVICE=cuda");
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto& [data, count, dtype, kind_of_memory] = tensors[i];
    if (kind_of_memory != memory) {
      refuse(
          fmt::format("buffer {} is in {} memory and buffer 0 in {} memory; those of one "
                      "message are in memory of one kind",
                      i, to_string(kind_of_memory), to_string(memory)));
    }
    if (data == nullptr && count > 0) {
      refuse(tensors.size() == 1 ? "the buffer is null" : fmt::format("buffer {} is null", i));
    }
  }
  if (!sends && tensors.size() > 1) {
    std::vector<UsedMemory> used;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      used.push_back({.begin = tensors[i].data, .bytes = tensors[i].bytes(), .index = i});
    }
    if (const auto overlap = find_overlap(std::move(used))) {
      refuse(fmt::format("buffers {} and {} share memory; each tensor needs memory of its own",
                         overlap->first, overlap->second));
    }
  }
  if ((peer >= 0 && peer < world_size_) || (peer == kAnyRank && !sends)) return;
  refuse(fmt::format("the peer {} is not a rank{}", peer, sends ? "" : ", and not kAnyRank"));
}

MessageCalls::Call MessageCalls::start(Message::Kind kind, std::span<const BufferView> tensors,
                                       int peer, std::uint64_t tag, NativeStream stream) {
  check_call(kind, tensors, peer);
  Call call = take_unused();
  call->kind = kind;
  call->peer = peer;
  call->tag = tag;
  call->set_parts(tensors);
  call->ready = nullptr;
  if (call->memory() == MemoryKind::kDevice) {
    std::shared_ptr<Event> ready = device_->make_event();
    device_->record(stream, *ready);
    call->ready = std::move(ready);
  }
  engine_.submit(std::shared_ptr<Message>(call));
  return call;
}

MessageCalls::Call MessageCalls::take_unused() {
  const MutexLock lock(mutex_);
  if (unused_.empty()) return std::make_shared<MessageCall>();
  Call call = std::move(unused_.back());
  unused_.pop_back();
  return call;
}

/// Before: it is done, and nobody else refers to it but to drop it.
void MessageCalls::give_back(Call call) {
  call->reset();
  const MutexLock lock(mutex_);
  if (unused_.size() < kMostUnused) unused_.push_back(std::move(call));
}

}  // namespace kolo
