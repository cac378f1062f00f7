#include "comm/transport/message_stream.h"

#include <cstddef>

namespace kolo {

void MessageWriter::push(std::uint64_t tag, std::span<const std::byte> data, Completion& done) {
  done.state = Completion::State::kPending;
  queue_.push_back(
      {.header = {tag, data.size()}, .data = data, .done = &done, .copy = {}, .written = 0});
}

void MessageWriter::push_copy(std::span<const std::byte> data) {
  const MessageHeader header{0, data.size()};
  if (next_ == queue_.size() && ring_.room() >= sizeof header + data.size()) {
    Outgoing message{.header = header, .data = data, .done = nullptr, .copy = {}, .written = 0};
    write_some(message);
    return;
  }
  queue_.push_back({.header = header,
                    .data = {},
                    .done = nullptr,
                    .copy = {data.begin(), data.end()},
                    .written = 0});
  queue_.back().data = queue_.back().copy;
}

bool MessageWriter::pump() {
  bool moved = false;
  while (next_ < queue_.size()) {
    Outgoing& message = queue_[next_];
    moved |= write_some(message);
    if (message.written < sizeof message.header + message.data.size()) {
      if (!ring_.await_room()) return moved;
      continue;
    }
    if (message.done != nullptr) message.done->state = Completion::State::kDone;
    message.copy = std::vector<std::byte>();
    // Moves the rest to the front once half of the memory is free, so that a queue that never
    // becomes empty does not grow.
    if (++next_ * 2 >= queue_.size()) {
      queue_.erase(queue_.begin(), queue_.begin() + static_cast<std::ptrdiff_t>(next_));
      next_ = 0;
    }
  }
  return moved;
}

bool MessageWriter::write_some(Outgoing& message) {
  const std::size_t before = message.written;
  if (message.written < sizeof message.header) {
    const auto header = std::as_bytes(std::span(&message.header, 1));
    message.written += ring_.write(header.subspan(message.written));
  }
  if (message.written >= sizeof message.header) {
    message.written += ring_.write(message.data.subspan(message.written - sizeof message.header));
  }
  return message.written != before;
}

void MessageWriter::cancel() noexcept {
  for (std::size_t i = next_; i < queue_.size(); ++i) {
    if (queue_[i].done != nullptr) queue_[i].done->state = Completion::State::kIdle;
  }
  queue_.clear();
  next_ = 0;
}

}  // namespace kolo
