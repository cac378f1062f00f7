#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "comm/message/received.h"
#include "runtime/calls/rows/row_sums.h"

namespace kolo {

class InFlight;

/// One operation that has begun. Copies refer to the same one. Threads: any.
///
/// The last copy that goes ends the operation, after which nobody touches its memory: it waits for
/// it, as `wait` does, and logs its error. Where that takes longer than `operation_timeout`, and
/// while an exception unwinds the stack, when peers may wait for what this rank will not begin any
/// more, a receive is taken back, and from any other operation the rank leaves the job, as by
/// `Runtime::abort`. A barrier, which has no memory, is left alone.
class Ticket {
 public:
  /// For the runtime; users get tickets from a group.
  explicit Ticket(std::shared_ptr<InFlight> operation);

  /// True once the operation has a result or an error. Never blocks.
  bool done() const;

  /// Blocks until done, then returns or throws the operation's error.
  /// Errors: the error of the operation, the same on every rank; KoloError(kTimeout) when the
  ///         runtime's `operation_timeout` passes first. The operation is then still in flight.
  void wait();

  /// Waits for at most `limit`, or not at all if that is not positive. Returns whether it is done,
  /// so it may be called again.
  /// Errors: that of the operation.
  bool wait_for(std::chrono::milliseconds limit);

  /// A descriptor that becomes readable when it is done, for poll, epoll or an event loop. It lives
  /// as long as the operation or a ticket of it; only poll it.
  /// Errors: KoloError(kResources) without a descriptor left.
  int event();

  /// Waits for a receive, then says what was received. Errors: as `wait`; UsageError for any other
  /// operation.
  Received received();
  /// Takes a receive back: unless its message has come or is on its way, it soon fails with
  /// kCancelled, and the message goes to the next receive. Does nothing if it is done. Does not
  /// wait: the buffer is the caller's again once it is done. Errors: UsageError for any other
  /// operation.
  void cancel();

  /// Waits for a row-sparse all-reduce, then gives the results of all tables; a second call gets
  /// empty ones. Errors: as `wait`; UsageError for any other operation.
  std::vector<RowSums> sums();

 private:
  std::shared_ptr<InFlight> operation_;
};

}  // namespace kolo
