#include "runtime/api/in_flight.h"

#include <chrono>
#include <exception>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "comm/base/check.h"
#include "comm/base/log.h"
#include "runtime/api/ticket.h"

namespace kolo {
namespace {

TicketState& state_of(const InFlight::What& what) {
  if (const auto* const operation = std::get_if<std::shared_ptr<Operation>>(&what)) {
    return *(*operation)->ticket;
  }
  if (const auto* const message = std::get_if<std::shared_ptr<MessageCall>>(&what)) {
    return **message;
  }
  return *std::get<std::shared_ptr<RowReduction>>(what);
}

/// Returns the name of the operation in log lines.
std::string describe(const InFlight::What& what) {
  if (const auto* const operation = std::get_if<std::shared_ptr<Operation>>(&what)) {
    return (*operation)->signature();
  }
  if (const auto* const message = std::get_if<std::shared_ptr<MessageCall>>(&what)) {
    return (*message)->describe();
  }
  return fmt::format("'{}'", std::get<std::shared_ptr<RowReduction>>(what)->subject());
}

}  // namespace

InFlight::InFlight(std::shared_ptr<TicketGroup> group, Engine& engine, What what, std::uint64_t key)
    : group_(std::move(group)),
      engine_(engine),
      what_(std::move(what)),
      state_(state_of(what_)),
      habit_(group_->habits[key % group_->habits.size()]),
      exceptions_(std::uncaught_exceptions()) {
  std::visit([this](const auto& submitted) { engine_.submit(submitted); }, what_);
  group_->progress_engine->attend(habit_.expects_wait() ? ProgressEngine::Next::kDrive
                                                        : ProgressEngine::Next::kUnknown);
  begun_at_ = std::chrono::steady_clock::now();
}

InFlight::~InFlight() {
  const bool is_told = has_ended_well_ || has_told_error_;
  const bool is_due = !is_told && (state_.done() || uses_memory());
  if (is_due && group_->threads.is_of_this_process()) end();
  if (!has_ended_well_ || state_.is_watched()) return;
  if (const auto* const operation = std::get_if<std::shared_ptr<Operation>>(&what_)) {
    group_->operations.give_back(*operation);
  } else if (const auto* const message = std::get_if<std::shared_ptr<MessageCall>>(&what_)) {
    group_->messages.give_back(*message);
  }
}

/// Records in the habit when the program first waits for the operation; later waits do not count.
void InFlight::note_wait() {
  if (is_waited_for_.exchange(true, std::memory_order_relaxed)) return;
  habit_.waits(std::chrono::steady_clock::now() - begun_at_);
}

/// Calls `wait`, and notes whether it throws the operation's error. The error may come just after
/// the wait has timed out.
template <typename Wait>
auto InFlight::tell(const Wait& wait) {
  try {
    return wait();
  } catch (const KoloError& e) {
    if (state_.done() && e.error().code != ErrorCode::kTimeout) {
      has_told_error_.store(true, std::memory_order_relaxed);
    }
    throw;
  }
}

void InFlight::wait() {
  note_wait();
  tell([&] { state_.wait_within(group_->limit, group_->progress_engine.get()); });
  has_ended_well_.store(true, std::memory_order_relaxed);
}

bool InFlight::wait_for(std::chrono::milliseconds limit) {
  if (limit.count() > 0) note_wait();
  const bool is_done =
      tell([&] { return state_.wait_at_most(limit, group_->progress_engine.get()); });
  if (is_done) has_ended_well_.store(true, std::memory_order_relaxed);
  return is_done;
}

void InFlight::wait(NativeStream stream) {
  note_wait();
  tell([&] { state_.order_within(group_->limit, stream, group_->progress_engine.get()); });
}

bool InFlight::wait_for(std::chrono::milliseconds limit, NativeStream stream) {
  if (limit.count() > 0) note_wait();
  return tell([&] { return state_.order_at_most(limit, stream, group_->progress_engine.get()); });
}

Received InFlight::received() {
  const auto* const message = std::get_if<std::shared_ptr<MessageCall>>(&what_);
  check(message != nullptr && (*message)->kind == Message::Kind::kReceive,
        "the ticket is not that of a receive");
  wait();
  return (*message)->received;
}

void InFlight::cancel() {
  const auto* const message = std::get_if<std::shared_ptr<MessageCall>>(&what_);
  check(message != nullptr && (*message)->kind == Message::Kind::kReceive,
        "the ticket is not that of a receive");
  const bool was_pending = state_.while_pending([&] {
    engine_.withdraw(*message, {.code = ErrorCode::kCancelled,
                                .verb = "complete",
                                .bucket = state_.subject(),
                                .what = "the program took it back before a message came"});
  });
  if (was_pending) group_->progress_engine->attend(ProgressEngine::Next::kUnknown);
}

std::vector<RowSums> InFlight::sums() {
  const auto* const rows = std::get_if<std::shared_ptr<RowReduction>>(&what_);
  check(rows != nullptr, "the ticket is not that of a row-sparse all-reduce");
  wait();
  return (*rows)->take();
}

bool InFlight::uses_memory() const {
  const auto* const operation = std::get_if<std::shared_ptr<Operation>>(&what_);
  return operation == nullptr || !(*operation)->tensors.empty();
}

/// Waits for the operation and logs its error. Returns false if it is not done within the limit, or
/// because the driving thread is stuck.
bool InFlight::ends_within_limit() noexcept {
  try {
    state_.wait(group_->limit.time, group_->progress_engine.get());
  } catch (const std::exception& e) {
    log::error(fmt::format("{}, whose ticket was dropped: {}", describe(what_), e.what()));
  }
  return state_.done();
}

void InFlight::end() noexcept {
  try {
    const bool unwinds = std::uncaught_exceptions() > exceptions_;
    if (unwinds && state_.done()) return;  // The program has an error already.
    if (!unwinds && ends_within_limit()) return;
    const auto* const message = std::get_if<std::shared_ptr<MessageCall>>(&what_);
    if (message != nullptr && (*message)->kind == Message::Kind::kReceive) {
      cancel();
      if (state_.wait(group_->limit.time, group_->progress_engine.get())) return;
    }
    const std::string why = fmt::format("the last ticket of {} was dropped {}", describe(what_),
                                        unwinds ? "by an exception while it was in flight"
                                                : "and it was not done within operation_timeout");
    log::error("leaving the job: " + why);
    group_->leave_job(why);
    state_.wait(std::chrono::milliseconds(0), group_->progress_engine.get());
  } catch (const std::exception&) {
    // The operation has ended with this error, or the driving thread is stuck, which ends the job.
  }
}

Ticket::Ticket(std::shared_ptr<InFlight> operation) : operation_(std::move(operation)) {}

bool Ticket::done() const { return operation_->state().done(); }
void Ticket::wait() { operation_->wait(); }
bool Ticket::wait_for(std::chrono::milliseconds limit) { return operation_->wait_for(limit); }
int Ticket::event() { return operation_->state().event(); }
bool Ticket::enqueued() const { return operation_->state().is_enqueued(); }
void Ticket::wait(NativeStream stream) { operation_->wait(stream); }
bool Ticket::wait_for(std::chrono::milliseconds limit, NativeStream stream) {
  return operation_->wait_for(limit, stream);
}
int Ticket::enqueued_event() { return operation_->state().enqueued_event(); }
Received Ticket::received() { return operation_->received(); }
void Ticket::cancel() { operation_->cancel(); }
std::vector<RowSums> Ticket::sums() { return operation_->sums(); }

}  // namespace kolo
