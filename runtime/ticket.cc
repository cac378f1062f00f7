#include "runtime/ticket.h"

#include <utility>

#include <fmt/format.h>

namespace kolo {
namespace {

class Waiting {
 public:
  explicit Waiting(std::atomic<int>& waiters) : waiters_(waiters) { ++waiters_; }
  ~Waiting() { --waiters_; }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  std::atomic<int>& waiters_;
};

}  // namespace

void TicketState::complete(std::optional<Error> error) {
  {
    const std::lock_guard lock(mutex_);
    if (done_) return;
    done_ = true;
    error_ = std::move(error);
  }
  changed_.notify_all();
}

bool TicketState::done() const {
  const std::lock_guard lock(mutex_);
  return done_;
}

bool TicketState::wait(std::chrono::milliseconds timeout) {
  const Waiting waiting(waiters_);
  std::unique_lock lock(mutex_);
  const auto is_done = [this] { return done_; };
  if (timeout.count() == 0) {
    changed_.wait(lock, is_done);
  } else if (!changed_.wait_for(lock, timeout, is_done)) {
    return false;
  }
  if (error_) throw KoloError(*error_);
  return true;
}

Ticket::Ticket(std::shared_ptr<TicketState> state, std::chrono::milliseconds timeout)
    : state_(std::move(state)), timeout_(timeout) {}

bool Ticket::done() const { return state_->done(); }

void Ticket::wait() {
  if (state_->wait(timeout_)) return;
  throw KoloError(
      {.code = ErrorCode::kTimeout,
       .verb = "complete",
       .what = fmt::format("no result after {} ms although no peer is known to be lost; "
                           "operation_timeout sets this limit",
                           timeout_.count())});
}

}  // namespace kolo
