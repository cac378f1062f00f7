#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "comm/message/received.h"
#include "runtime/calls/row_sums/row_sums.h"

namespace kolo {

class InFlight;

/// One operation that has begun. Copies refer to the same operation. Threads: any.
///
/// The destructor of the last copy ends the operation; afterwards nobody touches its memory. It
/// waits, as `wait` does, and logs the operation's error. After `operation_timeout`, or while an
/// exception unwinds the stack (peers may then wait for operations that this rank will never
/// begin), it does not wait any longer: a receive is cancelled, and for any other operation the
/// rank leaves the job, as by `Runtime::abort`. A barrier, which has no memory, is left alone.
class Ticket {
 public:
  /// For the runtime; users get tickets from a group.
  explicit Ticket(std::shared_ptr<InFlight> operation);

  /// True once the operation has a result or an error. Never blocks.
  bool done() const;

  /// Blocks until done, then returns or throws the operation's error.
  /// Errors: the error of the operation, the same on every rank; KoloError(kTimeout) if the
  ///         runtime's `operation_timeout` passes first. The operation is then still in flight.
  void wait();

  /// Waits for at most `limit`, or not at all if that is not positive. Returns whether the
  /// operation is done, so it may be called again. Errors: the error of the operation.
  bool wait_for(std::chrono::milliseconds limit);

  /// A descriptor that becomes readable when the operation is done, for poll, epoll or an event
  /// loop. It lives as long as the operation or a ticket of it; only poll it.
  /// Errors: KoloError(kResources) without a descriptor left.
  int event();

  /// Waits for a receive, then returns its source and number of elements. Errors: as `wait`;
  /// UsageError for any other operation.
  Received received();
  /// Cancels a receive. Unless its message has come or is on its way, the receive soon fails with
  /// kCancelled, and the message goes to the next receive. Does nothing if the receive is done.
  /// Does not wait: the buffer is the caller's again once the ticket is done. Errors: UsageError
  /// for any other operation.
  void cancel();

  /// Waits for a row-sparse all-reduce, then returns the results of all tables; a second call
  /// returns empty ones. Errors: as `wait`; UsageError for any other operation.
  std::vector<RowSums> sums();

 private:
  std::shared_ptr<InFlight> operation_;
};

}  // namespace kolo
