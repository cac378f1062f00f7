#include "runtime/api/ticket.h"

#include <utility>

#include "comm/base/check.h"
#include "runtime/buckets/ticket_state.h"
#include "runtime/calls/rows/row_reduction.h"
#include "runtime/engine/engine.h"
#include "runtime/message/message_call.h"
#include "runtime/wait/driver.h"

namespace kolo {

Ticket::Ticket(std::shared_ptr<TicketState> state, std::shared_ptr<Driver> driver,
               std::shared_ptr<const WaitLimit> limit)
    : state_(std::move(state)), driver_(std::move(driver)), limit_(std::move(limit)) {}

bool Ticket::done() const { return state_->done(); }

void Ticket::wait() { state_->wait_within(*limit_, driver_.get()); }
bool Ticket::wait_for(std::chrono::milliseconds limit) {
  return state_->wait_at_most(limit, driver_.get());
}
int Ticket::event() { return state_->event(); }

ReceiveTicket::ReceiveTicket(std::shared_ptr<MessageCall> call, Engine& engine,
                             std::shared_ptr<Driver> driver, std::shared_ptr<const WaitLimit> limit)
    : call_(std::move(call)),
      engine_(&engine),
      driver_(std::move(driver)),
      limit_(std::move(limit)) {}

bool ReceiveTicket::done() const { return call_->done(); }

Received ReceiveTicket::wait() {
  call_->wait_within(*limit_, driver_.get());
  return call_->received;
}

bool ReceiveTicket::wait_for(std::chrono::milliseconds limit) {
  return call_->wait_at_most(limit, driver_.get());
}

int ReceiveTicket::event() { return call_->event(); }

Received ReceiveTicket::received() const {
  check(done(), "received() before the receive is done");
  return call_->received;
}

void ReceiveTicket::cancel() {
  const bool was_pending = call_->while_pending([&] {
    engine_->withdraw(call_, {.code = ErrorCode::kCancelled,
                              .verb = "complete",
                              .bucket = call_->subject(),
                              .what = "the program took it back before a message came"});
  });
  if (was_pending) driver_->attend(Driver::Next::kUnknown);
}

RowTicket::RowTicket(std::shared_ptr<RowReduction> call, std::shared_ptr<Driver> driver,
                     std::shared_ptr<const WaitLimit> limit)
    : call_(std::move(call)), driver_(std::move(driver)), limit_(std::move(limit)) {}

bool RowTicket::done() const { return call_->done(); }

RowSums RowTicket::sums() {
  wait();
  check(call_->tables() == 1, "sums() of several tables; all_sums() gives them");
  return std::move(call_->take().front());
}

std::size_t RowTicket::tables() const { return call_->tables(); }

std::vector<RowSums> RowTicket::all_sums() {
  wait();
  return call_->take();
}

void RowTicket::wait() { call_->wait_within(*limit_, driver_.get()); }

bool RowTicket::wait_for(std::chrono::milliseconds limit) {
  return call_->wait_at_most(limit, driver_.get());
}

int RowTicket::event() { return call_->event(); }

}  // namespace kolo
