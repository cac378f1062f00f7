#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "comm/base/error.h"
#include "comm/base/mutex.h"
#include "comm/base/unique_handle.h"

namespace kolo {

class ProgressEngine;

/// Time limit of a wait in a user's thread, and the group's name for the error after it.
struct WaitLimit {
  std::chrono::milliseconds time{0};  ///< 0: no limit.
  std::string group = {};             ///< As `Error::group`.
};

/// The shared state of one asynchronous operation: completed once by the engine, waited for by any
/// number of threads.
class TicketState {
 public:
  TicketState() = default;
  /// For a part of the operation `whole`: threads that wait for `whole` count as waiting for the
  /// part.
  explicit TicketState(std::shared_ptr<const TicketState> whole) : whole_(std::move(whole)) {}
  TicketState(const TicketState&) = delete;
  TicketState& operator=(const TicketState&) = delete;
  virtual ~TicketState() = default;

  /// Describes the operation in the error of a wait that takes too long.
  virtual std::string subject() const { return {}; }

  /// Completes the operation, with or without an error, unless it is complete. Threads: the
  /// engine's.
  void complete() noexcept KOLO_EXCLUDES(mutex_);
  void fail(const Error& error) noexcept KOLO_EXCLUDES(mutex_);

  bool done() const { return done_.load(std::memory_order_acquire); }

  /// Blocks until done or until `timeout` (0: for ever) has passed; meanwhile the caller's thread
  /// drives the engine, if there is a progress engine. Returns false on time-out; throws the
  /// operation's error.
  bool wait(std::chrono::milliseconds timeout, ProgressEngine* progress_engine = nullptr);
  /// As `wait`, with the limit's time; a time-out is KoloError(kTimeout).
  void wait_within(const WaitLimit& limit, ProgressEngine* progress_engine);

  /// Waits for at most `limit`, or not at all if that is not positive. Returns whether the
  /// operation is done; throws its error.
  bool wait_at_most(std::chrono::milliseconds limit, ProgressEngine* progress_engine);

  /// Calls `call` unless the operation is done; it cannot complete during the call. Returns whether
  /// `call` was called.
  template <typename Call>
  bool while_pending(const Call& call) KOLO_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (done()) return false;
    call();
    return true;
  }

  /// A descriptor that is readable once the operation is done; every call returns the same one.
  int event() KOLO_EXCLUDES(mutex_);

  /// Resets it for another operation. Precondition: it is done, and `event` was not called.
  /// Threads: the only one that waits.
  void reset() KOLO_EXCLUDES(mutex_);

  /// Whether `event` was called: then the program waits, perhaps without a thread in `wait`.
  bool is_watched() const {
    return whole_ ? whole_->is_watched() : is_watched_.load(std::memory_order_relaxed);
  }

  /// The number of threads that wait. The coordinator reads it to tell a deadlocked rank from a
  /// busy one.
  const std::atomic<int>& waiters() const { return whole_ ? whole_->waiters() : waiters_; }

 private:
  void end(std::optional<Error> error) noexcept KOLO_EXCLUDES(mutex_);
  void throw_error() const;

  const std::shared_ptr<const TicketState> whole_;  // null if it is no part
  Mutex mutex_;
  ConditionVariable changed_;
  std::atomic<bool> done_{false};  // written under the mutex, read also without
  std::optional<Error> error_ KOLO_GUARDED_BY(mutex_);
  FileDescriptor event_ KOLO_GUARDED_BY(mutex_);
  std::atomic<int> waiters_{0};
  std::atomic<bool> is_watched_{false};
};

}  // namespace kolo
