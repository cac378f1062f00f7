#include "runtime/api/ticket.h"

#include <utility>

#include <fmt/format.h>

#include "runtime/wait/waiting.h"

namespace kolo {

void TicketState::complete(std::optional<Error> error) {
  {
    const std::lock_guard lock(mutex_);
    if (done_.load(std::memory_order_relaxed)) return;
    error_ = std::move(error);
    done_.store(true, std::memory_order_release);
  }
  changed_.notify_all();
}

bool TicketState::wait(std::chrono::milliseconds timeout, Driver* driver) {
  const Waiting waiting(waiters_);
  const bool in_time = wait_until(
      deadline_after(timeout), driver, [this] { return done(); }, mutex_, changed_);
  if (!in_time) return false;
  if (error_) throw KoloError(*error_);
  return true;
}

void TicketState::wait_within(std::chrono::milliseconds timeout, Driver* driver) {
  if (wait(timeout, driver)) return;
  throw KoloError(
      {.code = ErrorCode::kTimeout,
       .verb = "complete",
       .what = fmt::format("no result after {} ms although no peer is known to be lost; "
                           "operation_timeout sets this limit",
                           timeout.count())});
}

void TicketState::reset() {
  const std::lock_guard lock(mutex_);  // Whoever completed it has let go of it.
  error_.reset();
  done_.store(false, std::memory_order_relaxed);
}

Ticket::Ticket(std::shared_ptr<TicketState> state, std::shared_ptr<Driver> driver,
               std::chrono::milliseconds timeout)
    : state_(std::move(state)), driver_(std::move(driver)), timeout_(timeout) {}

bool Ticket::done() const { return state_->done(); }

void Ticket::wait() { state_->wait_within(timeout_, driver_.get()); }

}  // namespace kolo
