#pragma once

#include <string>

#include "comm/message/message.h"
#include "runtime/buckets/ticket_state.h"

namespace kolo {

/// A message that a user's thread sends or receives, with what it waits for.
class MessageCall final : public Message, public TicketState {
 public:
  void complete() noexcept override { TicketState::complete(); }
  void fail(const Error& error) noexcept override { TicketState::fail(error); }
  bool is_awaited() const override { return waiters() > 0 || is_watched(); }
  std::string subject() const override { return describe(); }
};

}  // namespace kolo
