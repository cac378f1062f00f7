#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <vector>

#include "comm/message/received.h"
#include "runtime/calls/rows/row_sums.h"

namespace kolo {

class Driver;
class Engine;
class MessageCall;
class RowReduction;
class TicketState;
struct WaitLimit;

/// Completion handle of one asynchronous operation. Copies refer to the same operation. Threads:
/// any.
class Ticket {
 public:
  /// For the runtime; users get tickets from the `_async` calls.
  Ticket(std::shared_ptr<TicketState> state, std::shared_ptr<Driver> driver,
         std::shared_ptr<const WaitLimit> limit);

  /// True once the operation has a result or an error. Never blocks.
  bool done() const;

  /// Blocks until done, then returns or throws the operation's error.
  /// Errors: the error of the operation, the same on every rank; KoloError(kTimeout) when the
  ///         runtime's `operation_timeout` passes first. The operation is then still in flight, so
  ///         its buffer must outlive the runtime.
  void wait();

  /// Waits for at most `limit`, or not at all if that is not positive. Returns whether it is done,
  /// so it may be called again.
  /// Errors: that of the operation.
  bool wait_for(std::chrono::milliseconds limit);

  /// A descriptor that becomes readable when it is done, for poll, epoll or an event loop. It lives
  /// as long as the operation or a ticket of it; only poll it.
  /// Errors: KoloError(kResources) without a descriptor left.
  int event();

 private:
  std::shared_ptr<TicketState> state_;
  std::shared_ptr<Driver> driver_;          // shared because a ticket may outlive its runtime
  std::shared_ptr<const WaitLimit> limit_;  // shared by all of one group
};

/// Completion handle of an asynchronous receive. Copies refer to the same receive. Threads: any.
class ReceiveTicket {
 public:
  /// For the runtime; users get tickets from `recv_async`.
  ReceiveTicket(std::shared_ptr<MessageCall> call, Engine& engine, std::shared_ptr<Driver> driver,
                std::shared_ptr<const WaitLimit> limit);

  /// True once the message is there, or the receive has failed. Never blocks.
  bool done() const;

  /// Blocks until done, then says what was received or throws the error of the receive.
  /// Errors: as `Ticket::wait`; a time-out names peer and tag.
  Received wait();

  /// As those of `Ticket`; `received` says what a receive got that is done without an error.
  bool wait_for(std::chrono::milliseconds limit);
  int event();
  Received received() const;

  /// Takes the receive back: unless its message has come or is on its way, it soon fails with
  /// kCancelled, and the message goes to the next receive. Does nothing if it is done. Does not
  /// wait: the buffer is the caller's again once it is done.
  void cancel();

 private:
  std::shared_ptr<MessageCall> call_;
  Engine* engine_;  // outlives every receive that is not done
  std::shared_ptr<Driver> driver_;
  std::shared_ptr<const WaitLimit> limit_;  // shared by all of one group
};

/// Completion handle of an asynchronous row-sparse all-reduce. Copies refer to the same one.
/// Threads: any; one takes the results.
class RowTicket {
 public:
  /// For the runtime; users get tickets from `sparse_all_reduce_async`.
  RowTicket(std::shared_ptr<RowReduction> call, std::shared_ptr<Driver> driver,
            std::shared_ptr<const WaitLimit> limit);

  /// True once there is a result or an error. Never blocks.
  bool done() const;

  /// Blocks until done, then gives the result of the only table, once: later it is empty.
  /// Errors: as `wait`; UsageError where there are several.
  RowSums sums();
  std::size_t tables() const;
  /// Blocks until done, then gives the results of all tables, once. Errors: as `wait`.
  std::vector<RowSums> all_sums();

  /// As those of `Ticket`.
  void wait();
  bool wait_for(std::chrono::milliseconds limit);
  int event();

 private:
  std::shared_ptr<RowReduction> call_;
  std::shared_ptr<Driver> driver_;
  std::shared_ptr<const WaitLimit> limit_;  // shared by all of one group
};

}  // namespace kolo
