#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "comm/base/native_stream.h"
#include "comm/message/received.h"
#include "runtime/calls/row_sums/row_sums.h"

namespace kolo {

class InFlight;

/// One operation that has begun. Copies refer to the same operation. Threads: any.
///
/// The destructor of the last copy ends the operation; afterwards Kolo does not use its buffers.
/// The destructor waits for the operation, and logs its error. After `operation_timeout`, or while
/// an exception unwinds the stack (peers may then wait for operations that this rank will never
/// begin), it stops waiting: it cancels a receive, and for any other operation the rank leaves the
/// job, as by `Runtime::abort`. A barrier has no buffers and stays in flight.
class Ticket {
 public:
  /// Used by the runtime; programs get tickets from a group.
  explicit Ticket(std::shared_ptr<InFlight> operation);

  /// Returns true once the operation has a result or an error. Never blocks.
  bool done() const;

  /// Blocks until done, then returns or throws the operation's error.
  /// Errors: the error of the operation, the same on every rank; KoloError(kTimeout) if the
  ///         runtime's `operation_timeout` passes first. The operation is then still in flight.
  void wait();

  /// Waits for at most `limit`; returns at once if `limit` is not positive. Returns whether the
  /// operation is done. Errors: the error of the operation.
  bool wait_for(std::chrono::milliseconds limit);

  /// Returns a descriptor that becomes readable when the operation is done, for poll, epoll or an
  /// event loop. It lives as long as the operation or a ticket of it; only poll it.
  /// Errors: KoloError(kResources) if no descriptor is left.
  int event();

  // For operations in device memory. Their work is enqueued on the device once all ranks have begun
  // them; later work on a stream that waits for an operation sees its result. Messages, and
  // operations that the host runs, count as enqueued once they are done. Buffers stay in use until
  // the operation is done.

  /// Returns true once the work is enqueued. Never blocks.
  bool enqueued() const;
  /// These wait until the work is enqueued, and make `stream` wait for it; the calling thread does
  /// not wait for the device. Errors: as `wait()`; an error that comes later ends the job.
  void wait(NativeStream stream);
  bool wait_for(std::chrono::milliseconds limit, NativeStream stream);
  /// Returns a descriptor as `event()` does, which becomes readable when the work is enqueued.
  int enqueued_event();

  /// Waits for a receive, then returns its source and number of elements. Errors: as `wait`;
  /// UsageError for any other operation.
  Received received();
  /// Cancels a receive. Unless its message has been received or is in flight, the receive soon
  /// fails with kCancelled, and the next receive gets the message. Does nothing if the receive is
  /// done. Never blocks; the buffer stays in use until the ticket is done. Errors: UsageError for
  /// any other operation.
  void cancel();

  /// Waits for a row-sparse all-reduce, then returns the results of all tables; a second call
  /// returns empty results. Errors: as `wait`; UsageError for any other operation.
  std::vector<RowSums> sums();

 private:
  std::shared_ptr<InFlight> operation_;
};

}  // namespace kolo
