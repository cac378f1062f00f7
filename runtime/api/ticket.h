#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>

#include "comm/base/error.h"

namespace kolo {

class Driver;

/// The shared state of one asynchronous operation: completed once by the engine, waited for by any
/// number of threads.
class TicketState {
 public:
  /// Threads: the engine's. Once.
  void complete(std::optional<Error> error);

  bool done() const { return done_.load(std::memory_order_acquire); }

  /// Blocks until done or until `timeout` (0: for ever) has passed; meanwhile the caller's thread
  /// drives the engine, if there is a driver. Returns false on time-out; throws the operation's
  /// error.
  bool wait(std::chrono::milliseconds timeout, Driver* driver = nullptr);
  /// The same, but a time-out is KoloError(kTimeout).
  void wait_within(std::chrono::milliseconds timeout, Driver* driver);

  /// Begins anew. Threads: the only one that waits, after `done`.
  void reset();

  /// How many threads wait: the coordinator asks, to tell a rank that cannot go on from one that is
  /// busy.
  const std::atomic<int>& waiters() const { return waiters_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> done_{false};  // changes under the mutex
  std::optional<Error> error_;     // constant once done
  std::atomic<int> waiters_{0};
};

/// Completion handle of one asynchronous operation. Copyable; refers to shared state. Threads: any.
class Ticket {
 public:
  Ticket(std::shared_ptr<TicketState> state, std::shared_ptr<Driver> driver,
         std::chrono::milliseconds timeout);

  /// True once the operation has a result or an error. Never blocks.
  bool done() const;

  /// Blocks until done, then returns or throws the operation's error.
  /// Errors: the error of the operation, the same on every rank; KoloError(kTimeout) when the
  ///         runtime's `operation_timeout` passes first. The operation is then still under way, so
  ///         its buffer must outlive the runtime.
  void wait();

 private:
  std::shared_ptr<TicketState> state_;
  std::shared_ptr<Driver> driver_;  // shared because a ticket may outlive its runtime
  std::chrono::milliseconds timeout_;
};

}  // namespace kolo
