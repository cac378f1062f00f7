#include <chrono>

#include <kolo/kolo_c.h>

#include "runtime/c/arguments.h"
#include "runtime/c/guard.h"
#include "runtime/c/handles.h"

using kolo::check_given;
using kolo::guarded;

kolo_status kolo_ticket_test(kolo_ticket* ticket, int* done) {
  return guarded([&] {
    check_given(ticket, "ticket");
    check_given(done, "done");
    *done = ticket->ticket.done() ? 1 : 0;
  });
}

kolo_status kolo_ticket_wait(kolo_ticket* ticket, int64_t timeout_ms, int* done) {
  return guarded([&] {
    check_given(ticket, "ticket");
    bool is_done = true;
    if (done != nullptr) *done = 0;
    if (timeout_ms < 0) {
      ticket->ticket.wait();
    } else {
      is_done = ticket->ticket.wait_for(std::chrono::milliseconds(timeout_ms));
    }
    if (done != nullptr) *done = is_done ? 1 : 0;
  });
}

kolo_status kolo_ticket_event(kolo_ticket* ticket, int* descriptor) {
  return guarded([&] {
    check_given(ticket, "ticket");
    check_given(descriptor, "descriptor");
    *descriptor = ticket->ticket.event();
  });
}

kolo_status kolo_ticket_received(kolo_ticket* ticket, kolo_received* received) {
  return guarded([&] {
    check_given(ticket, "ticket");
    check_given(received, "received");
    const kolo::Received got = ticket->ticket.received();
    *received = {.source = got.source, .count = got.count};
  });
}

kolo_status kolo_ticket_cancel(kolo_ticket* ticket) {
  return guarded([&] {
    check_given(ticket, "ticket");
    ticket->ticket.cancel();
  });
}

void kolo_ticket_release(kolo_ticket* ticket) { delete ticket; }
