#include "runtime/buckets/ticket_state.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "comm/transport/doorbell.h"
#include "runtime/wait/caught.h"
#include "runtime/wait/progress_engine.h"

namespace kolo {

void TicketState::complete() noexcept { end(std::nullopt); }
void TicketState::fail(const Error& error) noexcept { end(copied(error)); }

void TicketState::end(std::optional<Error> error) noexcept {
  {
    const MutexLock lock(mutex_);
    if (done_.load(std::memory_order_relaxed)) return;
    error_ = std::move(error);
    const bool is_event = static_cast<bool>(event_);
    const bool is_enqueued_event = static_cast<bool>(enqueued_event_);
    /// If there is no event, this is the last access to the ticket; `reset` relies on that.
    done_.store(true, std::memory_order_release);
    if (is_event) raise_event(event_.get());
    if (is_enqueued_event) raise_event(enqueued_event_.get());
  }
  changed_.notify_all();
}

void TicketState::enqueued(Device& device, const Event& end) noexcept {
  {
    const MutexLock lock(mutex_);
    device_ = &device;
    end_of_work_ = &end;
    is_enqueued_.store(true, std::memory_order_release);
    if (enqueued_event_) raise_event(enqueued_event_.get());
  }
  changed_.notify_all();
}

bool TicketState::wait(std::chrono::milliseconds timeout, ProgressEngine* progress_engine) {
  const Waiting waiting(waiters_);
  const bool in_time = wait_until(
      Deadline(timeout), progress_engine, [this] { return done(); }, mutex_, changed_);
  if (!in_time) return false;
  throw_error();
  return true;
}

// Needs no lock: the caller has seen `done_`, after which the error is constant.
void TicketState::throw_error() const KOLO_NO_THREAD_SAFETY_ANALYSIS {
  if (error_) throw KoloError(*error_);
}

void TicketState::wait_within(const WaitLimit& limit, ProgressEngine* progress_engine) {
  if (!wait(limit.time, progress_engine)) throw_late(limit);
}

void TicketState::throw_late(const WaitLimit& limit) const {
  throw KoloError(
      {.code = ErrorCode::kTimeout,
       .group = limit.group,
       .verb = "complete",
       .bucket = subject(),
       .what = fmt::format("no result within the timeout of {} ms although no peer is lost; "
                           "operation_timeout sets this limit",
                           limit.time.count())});
}

bool TicketState::wait_at_most(std::chrono::milliseconds limit, ProgressEngine* progress_engine) {
  if (limit.count() > 0) return wait(limit, progress_engine);
  if (!done()) return false;
  throw_error();
  return true;
}

bool TicketState::order(std::chrono::milliseconds timeout, NativeStream stream,
                        ProgressEngine* progress_engine) {
  const auto is_due = [this] { return is_enqueued(); };
  bool in_time = false;
  {
    const Waiting waiting(waiters_);
    in_time = wait_until(Deadline(timeout), progress_engine, is_due, mutex_, changed_);
  }
  if (!in_time) return false;
  const bool is_pending =
      while_pending([&]() KOLO_NO_THREAD_SAFETY_ANALYSIS { device_->wait(stream, *end_of_work_); });
  if (!is_pending) throw_error();
  return true;
}

void TicketState::order_within(const WaitLimit& limit, NativeStream stream,
                               ProgressEngine* progress_engine) {
  if (!order(limit.time, stream, progress_engine)) throw_late(limit);
}

bool TicketState::order_at_most(std::chrono::milliseconds limit, NativeStream stream,
                                ProgressEngine* progress_engine) {
  if (limit.count() <= 0 && !is_enqueued()) return false;
  return order(std::max(limit, std::chrono::milliseconds(1)), stream, progress_engine);
}

int TicketState::make_event(FileDescriptor& event, bool is_raised) {
  if (!event) {
    event = make_event_fd();
    if (is_raised) raise_event(event.get());
    is_watched_.store(true, std::memory_order_relaxed);
  }
  return event.get();
}

int TicketState::event() {
  const MutexLock lock(mutex_);
  return make_event(event_, done());
}

int TicketState::enqueued_event() {
  const MutexLock lock(mutex_);
  return make_event(enqueued_event_, is_enqueued());
}

// Needs no lock: without an event, the completing thread accesses nothing after `done_`.
void TicketState::reset() KOLO_NO_THREAD_SAFETY_ANALYSIS {
  error_.reset();
  is_enqueued_.store(false, std::memory_order_relaxed);
  done_.store(false, std::memory_order_relaxed);
}

}  // namespace kolo
