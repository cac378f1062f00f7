#pragma once

#include <chrono>
#include <memory>

#include "comm/message/received.h"

namespace kolo {

class Driver;
class MessageCall;
class TicketState;

/// Completion handle of one asynchronous operation. Copies refer to the same operation. Threads:
/// any.
class Ticket {
 public:
  /// For the runtime; users get tickets from the `_async` calls.
  Ticket(std::shared_ptr<TicketState> state, std::shared_ptr<Driver> driver,
         std::chrono::milliseconds timeout);

  /// True once the operation has a result or an error. Never blocks.
  bool done() const;

  /// Blocks until done, then returns or throws the operation's error.
  /// Errors: the error of the operation, the same on every rank; KoloError(kTimeout) when the
  ///         runtime's `operation_timeout` passes first. The operation is then still in flight, so
  ///         its buffer must outlive the runtime.
  void wait();

 private:
  std::shared_ptr<TicketState> state_;
  std::shared_ptr<Driver> driver_;  // shared because a ticket may outlive its runtime
  std::chrono::milliseconds timeout_;
};

/// Completion handle of an asynchronous receive. Copies refer to the same receive. Threads: any.
class ReceiveTicket {
 public:
  /// For the runtime; users get tickets from `recv_async`.
  ReceiveTicket(std::shared_ptr<MessageCall> call, std::shared_ptr<Driver> driver,
                std::chrono::milliseconds timeout);

  /// True once the message is there, or the receive has failed. Never blocks.
  bool done() const;

  /// Blocks until done, then says what was received or throws the error of the receive.
  /// Errors: as `Ticket::wait`; a time-out names peer and tag.
  Received wait();

 private:
  std::shared_ptr<MessageCall> call_;
  std::shared_ptr<Driver> driver_;
  std::chrono::milliseconds timeout_;
};

}  // namespace kolo
