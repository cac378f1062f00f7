#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/message/message.h"
#include "runtime/wait/caught.h"
#include "tests/support/engine_job.h"

namespace kolo::test {

/// A message of one rank of an `EngineJob`, with its outcome.
class CalledMessage final : public Message {
 public:
  CalledMessage(Kind with_kind, BufferView with_buffer, int with_peer, std::uint64_t with_tag) {
    kind = with_kind;
    buffer = with_buffer;
    peer = with_peer;
    tag = with_tag;
  }

  void complete() noexcept override { is_over_ = true; }
  void fail(const Error& error) noexcept override {
    if (!is_over_) error_ = copied(error);
    is_over_ = true;
  }

  bool is_awaited() const override { return awaited; }

  bool is_over() const { return is_over_; }
  std::optional<ErrorCode> code() const {
    return error_ ? std::optional(error_->code) : std::nullopt;
  }
  /// Returns the text of the error, or an empty string.
  std::string text() const { return error_ ? error_->to_string() : std::string(); }

  bool awaited = true;  ///< Whether a thread waits for the message.

 private:
  bool is_over_ = false;
  std::optional<Error> error_;
};

inline std::shared_ptr<CalledMessage> submitted(EngineJob& job, int rank,
                                                std::shared_ptr<CalledMessage> message) {
  job.submit(rank, message, [message] { return message->is_over(); });
  return message;
}

using CalledMessages = std::vector<std::shared_ptr<CalledMessage>>;

inline std::shared_ptr<CalledMessage> call(EngineJob& job, int rank, Message::Kind kind,
                                           BufferView buffer, int peer, std::uint64_t tag) {
  return submitted(job, rank, std::make_shared<CalledMessage>(kind, buffer, peer, tag));
}

/// Submits a grouped message.
inline std::shared_ptr<CalledMessage> call(EngineJob& job, int rank, Message::Kind kind,
                                           const std::vector<BufferView>& tensors, int peer,
                                           std::uint64_t tag) {
  auto message = std::make_shared<CalledMessage>(kind, BufferView{}, peer, tag);
  message->set_parts(tensors);
  return submitted(job, rank, std::move(message));
}

inline std::shared_ptr<CalledMessage> send(EngineJob& job, int from, int to,
                                           std::vector<float>& data, std::uint64_t tag = 0) {
  return call(job, from, Message::Kind::kSend, view(data), to, tag);
}

inline std::shared_ptr<CalledMessage> receive(EngineJob& job, int at, int from,
                                              std::vector<float>& data, std::uint64_t tag = 0) {
  return call(job, at, Message::Kind::kReceive, view(data), from, tag);
}

inline bool are_over(const CalledMessages& messages) {
  return std::ranges::all_of(messages, [](const auto& message) { return message->is_over(); });
}

}  // namespace kolo::test
