#include "runtime/buckets/ticket_state.h"

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
    /// If there is no event, this is the last access to the ticket; `reset` relies on that.
    done_.store(true, std::memory_order_release);
    if (is_event) raise_event(event_.get());
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
  if (wait(limit.time, progress_engine)) return;
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

int TicketState::event() {
  const MutexLock lock(mutex_);
  if (!event_) {
    event_ = make_event_fd();
    if (done_.load(std::memory_order_relaxed)) raise_event(event_.get());
    is_watched_.store(true, std::memory_order_relaxed);
  }
  return event_.get();
}

// Needs no lock: without an event, the completing thread accesses nothing after `done_`.
void TicketState::reset() KOLO_NO_THREAD_SAFETY_ANALYSIS {
  error_.reset();
  done_.store(false, std::memory_order_relaxed);
}

}  // namespace kolo
