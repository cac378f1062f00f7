#pragma once

#include <chrono>
#include <memory>

namespace kolo {

class Driver;
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

}  // namespace kolo
