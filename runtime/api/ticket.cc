#include "runtime/api/ticket.h"

#include <utility>

#include "runtime/api/in_flight.h"

namespace kolo {

Ticket::Ticket(std::shared_ptr<InFlight> operation) : operation_(std::move(operation)) {}

bool Ticket::done() const { return operation_->state().done(); }
void Ticket::wait() { operation_->wait(); }
bool Ticket::wait_for(std::chrono::milliseconds limit) { return operation_->wait_for(limit); }
int Ticket::event() { return operation_->state().event(); }
Received Ticket::received() { return operation_->received(); }
void Ticket::cancel() { operation_->cancel(); }
std::vector<RowSums> Ticket::sums() { return operation_->sums(); }

}  // namespace kolo
