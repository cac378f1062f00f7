// Tests messages and tickets of the C interface.

#include <gmock/gmock.h>
#include <poll.h>

#include <future>

#include "tests/runtime/c/c_job.h"

namespace c_test {
namespace {

constexpr std::size_t kLength = 5;

TEST(CMessages, AndTickets) {
  run_job(2, [](kolo_runtime* runtime) {
    kolo_group* const world = kolo_world(runtime);
    std::vector<float> data(kLength, 7), got(2 * kLength);
    const kolo_buffer sent = view(data), place = view(got);
    if (kolo_group_rank(world) == 0) {
      kolo_received received{};
      ok(kolo_recv(world, &place, 1, KOLO_ANY_RANK, 3, nullptr, &received, nullptr));
      require(received.source == 1 && received.count == kLength && got[0] == 7, "a message");
      ok(kolo_send(world, &sent, 1, 1, 4, nullptr, nullptr));
    } else {
      kolo_ticket* ticket = nullptr;
      int done = 1, descriptor = -1;
      ok(kolo_recv(world, &place, 1, 0, 4, nullptr, nullptr, &ticket));
      ok(kolo_ticket_wait(ticket, 0, &done));
      require(done == 0, "a message that was not sent yet");
      ok(kolo_ticket_event(ticket, &descriptor));
      ok(kolo_send(world, &sent, 1, 0, 3, nullptr, nullptr));
      pollfd event{.fd = descriptor, .events = POLLIN, .revents = 0};
      require(poll(&event, 1, 60'000) == 1, "the event");
      ok(kolo_ticket_test(ticket, &done));
      kolo_received received{};
      ok(kolo_ticket_received(ticket, &received));
      require(done == 1 && received.source == 0 && received.count == kLength, "what was received");
      kolo_ticket_release(ticket);
    }
  });
}

TEST(CMessages, OfSeveralBuffers) {
  run_job(2, [](kolo_runtime* runtime) {
    kolo_group* const world = kolo_world(runtime);
    const int peer = 1 - kolo_group_rank(world);
    std::vector<float> data(kLength, 7), got(kLength), longer(2 * kLength);
    std::vector<std::int64_t> numbers(3, 1 + kolo_group_rank(world)), others(3);
    const kolo_buffer out[] = {view(data), {numbers.data(), 3, KOLO_INT64, KOLO_HOST}};
    const kolo_buffer in[] = {view(got), {others.data(), 3, KOLO_INT64, KOLO_HOST}};
    for (const bool in_background : {false, true}) {
      kolo_ticket* sent = nullptr;
      ok(kolo_send(world, out, 2, peer, 6, nullptr, &sent));
      kolo_received received{};
      if (in_background) {
        kolo_ticket* ticket = nullptr;
        ok(kolo_recv(world, in, 2, KOLO_ANY_RANK, 6, nullptr, nullptr, &ticket));
        ok(kolo_ticket_wait(ticket, -1, nullptr));
        ok(kolo_ticket_received(ticket, &received));
        kolo_ticket_release(ticket);
      } else {
        ok(kolo_recv(world, in, 2, peer, 6, nullptr, &received, nullptr));
      }
      require(received.source == peer && received.count == kLength + 3, "what was received");
      require(got[kLength - 1] == 7 && others[2] == 1 + peer, "both tensors");
      ok(kolo_ticket_wait(sent, -1, nullptr));
      kolo_ticket_release(sent);
    }
    const kolo_buffer too_long[] = {view(longer), in[1]};
    ok(kolo_send(world, out, 2, peer, 7, nullptr, nullptr));
    require(kolo_recv(world, too_long, 2, peer, 7, nullptr, nullptr, nullptr) == KOLO_MISMATCH,
            "a mismatch");
    require(kolo_send(world, nullptr, 2, peer, 7, nullptr, nullptr) == KOLO_USAGE, "no buffers");
    ok(kolo_barrier(world, nullptr));
  });
}

// Rank 1 begins after rank 0. When rank 0's release returns, its memory has the sum and is unused.
TEST(CTickets, AreReleasedWhenTheirOperationIsOver) {
  run_job(2, [](kolo_runtime* runtime) {
    kolo_group* const world = kolo_world(runtime);
    const auto me = static_cast<std::size_t>(kolo_group_rank(world));
    constexpr std::size_t kLarge = 1 << 20;
    for (std::size_t step = 0; step < 3; ++step) {
      std::vector<float> data(kLarge, static_cast<float>(10 * step + me)), word(1);
      const kolo_tensor tensor = in_place(data);
      const kolo_buffer begun = view(word);
      kolo_ticket* ticket = nullptr;
      if (me == 1) ok(kolo_recv(world, &begun, 1, 0, step, nullptr, nullptr, nullptr));
      ok(kolo_all_reduce(world, &tensor, 1, KOLO_SUM, nullptr, &ticket));
      if (me == 0) ok(kolo_send(world, &begun, 1, 1, step, nullptr, nullptr));
      kolo_ticket_release(ticket);
      require(data[kLarge - 1] == static_cast<float>(20 * step + 1), "a sum after the release");
    }
  });
}

// Rank 1 calls after rank 0 has timed out, in a blocking call or with a ticket.
TEST(CTickets, EndAnOperationThatTakesTooLong) {
  for (const bool blocks : {true, false}) {
    std::promise<kolo_status> of_rank_0;
    const auto wait_in_vain = [&](kolo_group* world) {
      std::vector<float> data(kLength, 1);
      const kolo_tensor tensor = in_place(data);
      kolo_ticket* ticket = nullptr;
      kolo_status status =
          kolo_all_reduce(world, &tensor, 1, KOLO_SUM, nullptr, blocks ? nullptr : &ticket);
      if (!blocks) status = kolo_ticket_wait(ticket, -1, nullptr);
      kolo_ticket_release(ticket);
      of_rank_0.set_value(status);
    };
    run_job(2,
            [&](kolo_runtime* runtime) {
              kolo_group* const world = kolo_world(runtime);
              if (kolo_group_rank(world) == 0) return wait_in_vain(world);
              EXPECT_EQ(of_rank_0.get_future().get(), KOLO_TIMEOUT);
              EXPECT_EQ(kolo_barrier(world, nullptr), KOLO_PEER_LOST);
              EXPECT_THAT(kolo_last_error()->what, testing::HasSubstr("was dropped"));
            },
            {{"operation_timeout", "300"}, {"stall_abort", "60000"}});
  }
}

TEST(CMessages, AReceiveIsTakenBack) {
  run_job(2, [](kolo_runtime* runtime) {
    kolo_group* const world = kolo_world(runtime);
    const int peer = 1 - kolo_group_rank(world);
    std::vector<float> data(kLength, 7), never(kLength, -1), got(kLength);
    const kolo_buffer sent = view(data), first = view(never), second = view(got);
    kolo_ticket* ticket = nullptr;
    ok(kolo_recv(world, &first, 1, peer, 5, nullptr, nullptr, &ticket));
    ok(kolo_ticket_cancel(ticket));
    require(kolo_ticket_wait(ticket, -1, nullptr) == KOLO_CANCELLED, "the status");
    require(std::string(kolo_last_error()->text).find("with tag 5") != std::string::npos,
            kolo_last_error()->text);
    kolo_ticket_release(ticket);
    ok(kolo_barrier(world, &ticket));
    require(kolo_ticket_cancel(ticket) == KOLO_USAGE, "other ranks take part in a barrier");
    ok(kolo_ticket_wait(ticket, -1, nullptr));
    kolo_ticket_release(ticket);
    ok(kolo_recv(world, &second, 1, peer, 5, nullptr, nullptr, &ticket));
    ok(kolo_send(world, &sent, 1, peer, 5, nullptr, nullptr));
    ok(kolo_ticket_wait(ticket, -1, nullptr));
    kolo_ticket_release(ticket);
    require(got[0] == 7 && never[0] == -1, "the message of the second receive");
  });
}

}  // namespace
}  // namespace c_test
