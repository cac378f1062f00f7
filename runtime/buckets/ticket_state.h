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

class Driver;

/// How long a user's thread waits before that is an error, and what the error tells of the place.
struct WaitLimit {
  std::chrono::milliseconds time{0};  ///< 0: for ever.
  std::string group = {};             ///< As `Error::group`.
};

/// The shared state of one asynchronous operation: completed once by the engine, waited for by any
/// number of threads.
class TicketState {
 public:
  TicketState() = default;
  /// For an operation that is a part of `whole`: threads that wait for `whole` wait for it, too.
  explicit TicketState(std::shared_ptr<const TicketState> whole) : whole_(std::move(whole)) {}
  TicketState(const TicketState&) = delete;
  TicketState& operator=(const TicketState&) = delete;
  virtual ~TicketState() = default;

  /// What is waited for, for the error of a wait that takes too long.
  virtual std::string subject() const { return {}; }

  /// Ends it, well or with an error, unless it has ended. Threads: the engine's.
  void complete() noexcept KOLO_EXCLUDES(mutex_);
  void fail(const Error& error) noexcept KOLO_EXCLUDES(mutex_);

  bool done() const { return done_.load(std::memory_order_acquire); }

  /// Blocks until done or until `timeout` (0: for ever) has passed; meanwhile the caller's thread
  /// drives the engine, if there is a driver. Returns false on time-out; throws the operation's
  /// error.
  bool wait(std::chrono::milliseconds timeout, Driver* driver = nullptr);
  /// The same, but a time-out is KoloError(kTimeout).
  void wait_within(const WaitLimit& limit, Driver* driver);

  /// Waits for at most `limit`, or not at all if that is not positive. Returns whether it is done;
  /// throws the operation's error.
  bool wait_at_most(std::chrono::milliseconds limit, Driver* driver);

  /// Calls `call` unless it is done; it does not end meanwhile. Returns whether it did so.
  template <typename Call>
  bool while_pending(const Call& call) KOLO_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (done()) return false;
    call();
    return true;
  }

  /// A descriptor that is readable once it is done; the same at every call.
  int event() KOLO_EXCLUDES(mutex_);

  /// Begins anew. Threads: the only one that waits, after `done`. Before: `event` was not called.
  void reset() KOLO_EXCLUDES(mutex_);

  /// Whether `event` was called: somebody waits, though no thread does so here.
  bool is_watched() const {
    return whole_ ? whole_->is_watched() : is_watched_.load(std::memory_order_relaxed);
  }

  /// The number of threads that wait. The coordinator reads it to tell a rank that cannot go on
  /// from one that is busy.
  const std::atomic<int>& waiters() const { return whole_ ? whole_->waiters() : waiters_; }

 private:
  void end(std::optional<Error> error) noexcept KOLO_EXCLUDES(mutex_);
  void throw_error() const;

  const std::shared_ptr<const TicketState> whole_;  // null if it is one itself
  Mutex mutex_;
  ConditionVariable changed_;
  std::atomic<bool> done_{false};  // written under the mutex, read also without
  std::optional<Error> error_ KOLO_GUARDED_BY(mutex_);
  FileDescriptor event_ KOLO_GUARDED_BY(mutex_);
  std::atomic<int> waiters_{0};
  std::atomic<bool> is_watched_{false};
};

}  // namespace kolo
