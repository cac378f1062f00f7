#include "comm/message/bounced_messages.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

namespace kolo {
namespace {

/// Unit of bounce buffer sizes in bytes, so that messages of similar sizes can share buffers.
constexpr std::size_t kBounceUnit = std::size_t{64} << 10;
/// Number of bounce buffers that are kept for later messages.
constexpr std::size_t kMostBounceBuffers = 16;

}  // namespace

class BouncedMessages::Bounced final : public Message {
 public:
  Bounced(std::shared_ptr<Message> message, std::shared_ptr<BounceBuffer> bounce_buffer)
      : message_(std::move(message)), bounce_buffer_(std::move(bounce_buffer)) {
    kind = message_->kind;
    peer = message_->peer;
    tag = message_->tag;
    std::vector<BufferView> here;
    std::vector<BounceBuffer::Copy> copies;
    std::size_t offset = 0;
    for (const BufferView& on_device : message_->parts()) {
      const std::size_t size = on_device.bytes();
      here.push_back({bounce_buffer_->data() + offset, on_device.count, on_device.dtype});
      if (size == 0) continue;
      copies.push_back(
          {.offset = offset, .device = static_cast<std::byte*>(on_device.data), .bytes = size});
      offset += size;
    }
    set_parts(here);
    const std::span<const BounceBuffer::Copy> all(copies);
    const bool sends = kind == Kind::kSend;
    bounce_buffer_->begin(sends ? all : all.first(0), sends ? all.first(0) : all,
                          message_->ready.get());
  }

  void complete() noexcept override {
    is_complete_ = true;
    if (kind == Kind::kReceive) return;
    bounce_buffer_->drain();  // copies nothing; only ends the use
    end();
  }
  void fail(const Error& error) noexcept override {
    if (!std::exchange(is_over_, true)) message_->fail(error);
  }
  bool is_awaited() const override { return message_->is_awaited(); }

  /// Whether the transfer from or to host memory is complete.
  bool is_complete() const { return is_complete_; }
  const std::shared_ptr<Message>& message() const { return message_; }
  bool is_full() { return bounce_buffer_->is_full(); }
  bool is_copying() const { return bounce_buffer_->is_copying(); }

  /// Completes a receive when its elements are on the device. Returns whether it is complete.
  bool finish() {
    if (is_over_) return true;
    if (!is_complete_ || !bounce_buffer_->drain_first(received_bytes())) return false;
    message_->received = received;
    end();
    return true;
  }

 private:
  /// Bytes received. A message of one tensor may be shorter than its receive; a message of several
  /// tensors has the size of its receive.
  std::size_t received_bytes() const {
    return tensors.empty() ? received.count * size_of(buffer.dtype) : bytes();
  }
  void end() noexcept {
    if (!std::exchange(is_over_, true)) message_->complete();
  }

  const std::shared_ptr<Message> message_;
  const std::shared_ptr<BounceBuffer> bounce_buffer_;
  bool is_complete_ = false;  // the host transfer is complete
  bool is_over_ = false;
};

std::shared_ptr<BounceBuffer> BouncedMessages::take_bounce_buffer(std::size_t bytes) {
  const auto is_unused = [](const auto& bounce_buffer) { return bounce_buffer.use_count() == 1; };
  // A bounce buffer that failed during a use is not reused.
  std::erase_if(bounce_buffers_, [&](auto& bounce_buffer) {
    return is_unused(bounce_buffer) && !bounce_buffer->is_idle();
  });
  for (const auto& bounce_buffer : bounce_buffers_) {
    const bool fits =
        bytes <= bounce_buffer->bytes() && bounce_buffer->bytes() <= 2 * bytes + kBounceUnit;
    if (fits && is_unused(bounce_buffer)) return bounce_buffer;
  }
  if (bounce_buffers_.size() >= kMostBounceBuffers) {
    const auto oldest = std::ranges::find_if(bounce_buffers_, is_unused);
    if (oldest != bounce_buffers_.end()) bounce_buffers_.erase(oldest);
  }
  bounce_buffers_.push_back(std::make_shared<BounceBuffer>(
      *streams_, (bytes + kBounceUnit - 1) / kBounceUnit * kBounceUnit));
  return bounce_buffers_.back();
}

void BouncedMessages::submit(const std::shared_ptr<Message>& message) {
  const bool sends = message->kind == Message::Kind::kSend;
  if (message->memory() != MemoryKind::kDevice) {
    if (sends && !sends_.empty()) {
      sends_.push_back(message);
    } else {
      messages_.submit(message);
    }
    return;
  }
  auto bounced = std::make_shared<Bounced>(message, take_bounce_buffer(message->bytes()));
  if (sends) {
    sends_.push_back(std::move(bounced));
  } else {
    receives_.push_back(bounced);
    messages_.submit(bounced);
  }
}

void BouncedMessages::withdraw(const std::shared_ptr<Message>& receive, const Error& error) {
  const auto bounced =
      std::ranges::find(receives_, receive, [](const auto& each) { return each->message(); });
  messages_.withdraw(bounced == receives_.end() ? receive : *bounced, error);
}

bool BouncedMessages::poll() {
  bool moved = false;
  while (!sends_.empty()) {
    auto* const bounced = dynamic_cast<Bounced*>(sends_.front().get());
    if (bounced != nullptr && !bounced->is_full()) break;
    messages_.submit(std::exchange(sends_.front(), nullptr));
    sends_.pop_front();
    moved = true;
  }
  moved |= std::erase_if(receives_, [](const auto& each) { return each->finish(); }) > 0;
  return moved;
}

bool BouncedMessages::is_copying() const {
  return !sends_.empty() ||
         std::ranges::any_of(receives_, [](const auto& each) { return each->is_copying(); });
}

void BouncedMessages::fail_all(const Error& error) noexcept {
  for (const auto& message : sends_) message->fail(error);
  sends_.clear();
  for (const auto& receive : receives_) {
    if (receive->is_complete()) receive->fail(error);
  }
  receives_.clear();  // `Messages` keeps receives alive that the transport still uses
}

}  // namespace kolo
