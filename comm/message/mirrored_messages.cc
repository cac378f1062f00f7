#include "comm/message/mirrored_messages.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

namespace kolo {
namespace {

/// Sizes of mirrors are multiples of this, so that messages of similar sizes can share them.
constexpr std::size_t kMirrorUnit = std::size_t{64} << 10;
/// Number of mirrors kept for later messages.
constexpr std::size_t kMostMirrors = 16;

}  // namespace

class MirroredMessages::Mirrored final : public Message {
 public:
  Mirrored(std::shared_ptr<Message> message, std::shared_ptr<PinnedMirror> mirror)
      : message_(std::move(message)), mirror_(std::move(mirror)) {
    kind = message_->kind;
    peer = message_->peer;
    tag = message_->tag;
    std::vector<BufferView> here;
    std::vector<PinnedMirror::Copy> copies;
    std::size_t offset = 0;
    for (const BufferView& on_device : message_->parts()) {
      const std::size_t size = on_device.bytes();
      here.push_back({mirror_->data() + offset, on_device.count, on_device.dtype});
      if (size == 0) continue;
      copies.push_back(
          {.offset = offset, .device = static_cast<std::byte*>(on_device.data), .bytes = size});
      offset += size;
    }
    set_parts(here);
    const std::span<const PinnedMirror::Copy> all(copies);
    const bool sends = kind == Kind::kSend;
    mirror_->begin(sends ? all : all.first(0), sends ? all.first(0) : all, message_->ready.get());
  }

  void complete() noexcept override {
    is_complete_ = true;
    if (kind == Kind::kReceive) return;
    mirror_->drain();  // nothing is copied up, so this only ends its use
    end();
  }
  void fail(const Error& error) noexcept override {
    if (!std::exchange(is_over_, true)) message_->fail(error);
  }
  bool is_awaited() const override { return message_->is_awaited(); }

  /// Whether the message of the host is complete.
  bool is_complete() const { return is_complete_; }
  const std::shared_ptr<Message>& message() const { return message_; }
  bool is_full() { return mirror_->is_full(); }
  bool is_copying() const { return mirror_->is_copying(); }

  /// For a receive: answers it after its elements have been copied up. Returns whether it did.
  bool finish() {
    if (is_over_) return true;
    if (!is_complete_ || !mirror_->drain_first(received_bytes())) return false;
    message_->received = received;
    end();
    return true;
  }

 private:
  /// Only a message of one tensor may be shorter than its receive.
  std::size_t received_bytes() const {
    return tensors.empty() ? received.count * size_of(buffer.dtype) : bytes();
  }
  void end() noexcept {
    if (!std::exchange(is_over_, true)) message_->complete();
  }

  const std::shared_ptr<Message> message_;
  const std::shared_ptr<PinnedMirror> mirror_;
  bool is_complete_ = false;  // on the host
  bool is_over_ = false;
};

std::shared_ptr<PinnedMirror> MirroredMessages::take_mirror(std::size_t bytes) {
  const auto is_unused = [](const auto& mirror) { return mirror.use_count() == 1; };
  // A mirror that failed during a use is not reused.
  std::erase_if(mirrors_, [&](auto& mirror) { return is_unused(mirror) && !mirror->is_idle(); });
  for (const auto& mirror : mirrors_) {
    const bool fits = bytes <= mirror->bytes() && mirror->bytes() <= 2 * bytes + kMirrorUnit;
    if (fits && is_unused(mirror)) return mirror;
  }
  if (mirrors_.size() >= kMostMirrors) {
    const auto oldest = std::ranges::find_if(mirrors_, is_unused);
    if (oldest != mirrors_.end()) mirrors_.erase(oldest);
  }
  mirrors_.push_back(std::make_shared<PinnedMirror>(
      *lane_, (bytes + kMirrorUnit - 1) / kMirrorUnit * kMirrorUnit));
  return mirrors_.back();
}

void MirroredMessages::submit(const std::shared_ptr<Message>& message) {
  const bool sends = message->kind == Message::Kind::kSend;
  if (message->memory() != MemoryKind::kDevice) {
    if (sends && !sends_.empty()) {
      sends_.push_back(message);
    } else {
      messages_.submit(message);
    }
    return;
  }
  auto mirrored = std::make_shared<Mirrored>(message, take_mirror(message->bytes()));
  if (sends) {
    sends_.push_back(std::move(mirrored));
  } else {
    receives_.push_back(mirrored);
    messages_.submit(mirrored);
  }
}

void MirroredMessages::withdraw(const std::shared_ptr<Message>& receive, const Error& error) {
  const auto mirrored =
      std::ranges::find(receives_, receive, [](const auto& each) { return each->message(); });
  messages_.withdraw(mirrored == receives_.end() ? receive : *mirrored, error);
}

bool MirroredMessages::poll() {
  bool moved = false;
  while (!sends_.empty()) {
    auto* const mirrored = dynamic_cast<Mirrored*>(sends_.front().get());
    if (mirrored != nullptr && !mirrored->is_full()) break;
    messages_.submit(std::exchange(sends_.front(), nullptr));
    sends_.pop_front();
    moved = true;
  }
  moved |= std::erase_if(receives_, [](const auto& each) { return each->finish(); }) > 0;
  return moved;
}

bool MirroredMessages::is_copying() const {
  return !sends_.empty() ||
         std::ranges::any_of(receives_, [](const auto& each) { return each->is_copying(); });
}

void MirroredMessages::fail_all(const Error& error) noexcept {
  for (const auto& message : sends_) message->fail(error);
  sends_.clear();
  for (const auto& receive : receives_) {
    if (receive->is_complete()) receive->fail(error);
  }
  receives_.clear();  // the transport may still use others, which it keeps alive
}

}  // namespace kolo
