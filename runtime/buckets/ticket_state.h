#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "comm/base/error.h"
#include "comm/base/mutex.h"
#include "comm/base/native_stream.h"
#include "comm/base/unique_handle.h"
#include "comm/device/device.h"

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
  /// Makes the ticket of a part of the operation `whole`. Threads that wait for `whole` count as
  /// waiting for the part.
  explicit TicketState(std::shared_ptr<const TicketState> whole) : whole_(std::move(whole)) {}
  TicketState(const TicketState&) = delete;
  TicketState& operator=(const TicketState&) = delete;
  virtual ~TicketState() = default;

  /// Returns the name of the operation for the error of a timeout.
  virtual std::string subject() const { return {}; }

  /// Completes the operation, with or without an error, unless it is complete. Threads: the
  /// engine's.
  void complete() noexcept KOLO_EXCLUDES(mutex_);
  void fail(const Error& error) noexcept KOLO_EXCLUDES(mutex_);

  bool done() const { return done_.load(std::memory_order_acquire); }

  /// Notes that all work of the operation is enqueued on `device`; `end`, which is recorded after
  /// it, must live until the operation is complete. Threads: the engine's.
  void enqueued(Device& device, const Event& end) noexcept KOLO_EXCLUDES(mutex_);
  /// Returns whether the operation is enqueued or done.
  bool is_enqueued() const { return is_enqueued_.load(std::memory_order_acquire) || done(); }

  /// Blocks until the operation is done or `timeout` (0: no limit) has passed. If `progress_engine`
  /// is not null, the caller's thread may poll the engine while it waits. Returns false on timeout;
  /// throws the operation's error.
  bool wait(std::chrono::milliseconds timeout, ProgressEngine* progress_engine = nullptr);
  /// Waits like `wait`, for the limit's time; throws KoloError(kTimeout) on timeout.
  void wait_within(const WaitLimit& limit, ProgressEngine* progress_engine);

  /// Waits for at most `limit`; returns at once if `limit` is not positive. Returns whether the
  /// operation is done; throws its error.
  bool wait_at_most(std::chrono::milliseconds limit, ProgressEngine* progress_engine);

  /// These work like `wait_within` and `wait_at_most`, but wait only until `is_enqueued()`, and
  /// make `stream` wait for the operation.
  void order_within(const WaitLimit& limit, NativeStream stream, ProgressEngine* progress_engine);
  bool order_at_most(std::chrono::milliseconds limit, NativeStream stream,
                     ProgressEngine* progress_engine) KOLO_EXCLUDES(mutex_);

  /// Calls `call` unless the operation is done; it cannot complete during the call. Returns whether
  /// `call` was called.
  template <typename Call>
  bool while_pending(const Call& call) KOLO_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (done()) return false;
    call();
    return true;
  }

  /// Returns a descriptor that is readable once the operation is done, in each call the same one.
  int event() KOLO_EXCLUDES(mutex_);
  /// Works like `event`, for `is_enqueued()`.
  int enqueued_event() KOLO_EXCLUDES(mutex_);

  /// Resets the ticket for another operation. Precondition: it is done, and no event was asked for.
  /// Threads: no other thread uses the ticket.
  void reset() KOLO_EXCLUDES(mutex_);

  /// Returns whether an event was asked for, so that the program may wait without a thread in
  /// `wait`.
  bool is_watched() const {
    return whole_ ? whole_->is_watched() : is_watched_.load(std::memory_order_relaxed);
  }

  /// The number of threads that wait. The coordinator reads it to tell a deadlocked rank from a
  /// busy one.
  const std::atomic<int>& waiters() const { return whole_ ? whole_->waiters() : waiters_; }

 private:
  void end(std::optional<Error> error) noexcept KOLO_EXCLUDES(mutex_);
  bool order(std::chrono::milliseconds timeout, NativeStream stream,
             ProgressEngine* progress_engine) KOLO_EXCLUDES(mutex_);
  int make_event(FileDescriptor& event, bool is_raised) KOLO_REQUIRES(mutex_);
  [[noreturn]] void throw_late(const WaitLimit& limit) const;
  void throw_error() const;

  const std::shared_ptr<const TicketState> whole_;  // null unless this is a part
  Mutex mutex_;
  ConditionVariable changed_;
  std::atomic<bool> done_{false};  // written under the mutex, read also without
  std::optional<Error> error_ KOLO_GUARDED_BY(mutex_);
  FileDescriptor event_ KOLO_GUARDED_BY(mutex_);
  std::atomic<bool> is_enqueued_{false};              // written under the mutex, read also without
  Device* device_ KOLO_GUARDED_BY(mutex_) = nullptr;  // these two are set once it is enqueued
  const Event* end_of_work_ KOLO_GUARDED_BY(mutex_) = nullptr;
  FileDescriptor enqueued_event_ KOLO_GUARDED_BY(mutex_);
  std::atomic<int> waiters_{0};
  std::atomic<bool> is_watched_{false};
};

}  // namespace kolo
