#include "runtime/api/ticket.h"

#include <utility>

#include "runtime/engine/ticket_state.h"

namespace kolo {

Ticket::Ticket(std::shared_ptr<TicketState> state, std::shared_ptr<Driver> driver,
               std::chrono::milliseconds timeout)
    : state_(std::move(state)), driver_(std::move(driver)), timeout_(timeout) {}

bool Ticket::done() const { return state_->done(); }

void Ticket::wait() { state_->wait_within(timeout_, driver_.get()); }

}  // namespace kolo
