#include <chrono>
#include <memory>

#include <kolo/kolo_c.h>

#include "runtime/c/arguments.h"
#include "runtime/c/guard.h"
#include "runtime/c/handles.h"

using kolo::check_given;
using kolo::guarded;

namespace {

kolo::ReceiveTicket& receive_of(kolo_ticket& ticket) {
  auto* const receive = std::get_if<kolo::ReceiveTicket>(&ticket.ticket);
  kolo::check(receive != nullptr, "the ticket is not that of a receive");
  return *receive;
}

}  // namespace

kolo_status kolo_ticket_test(kolo_ticket* ticket, int* done) {
  return guarded([&] {
    check_given(ticket, "ticket");
    check_given(done, "done");
    *done = std::visit([](auto& each) { return each.done(); }, ticket->ticket) ? 1 : 0;
  });
}

kolo_status kolo_ticket_wait(kolo_ticket* ticket, int64_t timeout_ms, int* done) {
  return guarded([&] {
    check_given(ticket, "ticket");
    bool is_done = true;
    if (done != nullptr) *done = 0;
    std::visit(
        [&](auto& each) {
          if (timeout_ms < 0) {
            each.wait();
          } else {
            is_done = each.wait_for(std::chrono::milliseconds(timeout_ms));
          }
        },
        ticket->ticket);
    if (done != nullptr) *done = is_done ? 1 : 0;
  });
}

kolo_status kolo_ticket_event(kolo_ticket* ticket, int* descriptor) {
  return guarded([&] {
    check_given(ticket, "ticket");
    check_given(descriptor, "descriptor");
    *descriptor = std::visit([](auto& each) { return each.event(); }, ticket->ticket);
  });
}

kolo_status kolo_ticket_received(kolo_ticket* ticket, kolo_received* received) {
  return guarded([&] {
    check_given(ticket, "ticket");
    check_given(received, "received");
    const kolo::Received got = receive_of(*ticket).received();
    *received = {.source = got.source, .count = got.count};
  });
}

kolo_status kolo_ticket_cancel(kolo_ticket* ticket) {
  return guarded([&] {
    check_given(ticket, "ticket");
    receive_of(*ticket).cancel();
  });
}

void kolo_ticket_release(kolo_ticket* ticket) { delete ticket; }
