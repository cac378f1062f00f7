// Every operation of the C interface moves what the C++ interface would.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "tests/runtime/c/c_job.h"

namespace c_test {
namespace {

constexpr int kRanks = 3;
constexpr std::size_t kPart = 5;

/// A buffer of `parts` parts, which `rank` fills: element i of part p is 100 rank + 10 p + i.
std::vector<float> filled(int rank, std::size_t parts) {
  std::vector<float> data(parts * kPart);
  for (std::size_t i = 0; i < data.size(); ++i) {
    data[i] = static_cast<float>(100 * rank + 10 * static_cast<int>(i / kPart) +
                                 static_cast<int>(i % kPart));
  }
  return data;
}

/// The sum over ranks of element i of part p.
float sum_of(std::size_t part, std::size_t i) {
  float sum = 0;
  for (int rank = 0; rank < kRanks; ++rank) sum += filled(rank, kRanks)[part * kPart + i];
  return sum;
}

/// Calls `begin` with no ticket, and with one that it then waits for.
template <typename Begin, typename Check>
void both_ways(const Begin& begin, const Check& check) {
  ok(begin(nullptr));
  check();
  kolo_ticket* ticket = nullptr;
  ok(begin(&ticket));
  ok(kolo_ticket_wait(ticket, -1, nullptr));
  kolo_ticket_release(ticket);
  check();
}

TEST(CCollectives, ThatReduce) {
  run_job(kRanks, [](kolo_runtime* runtime) {
    kolo_group* const world = kolo_world(runtime);
    const int me = kolo_group_rank(world);
    const std::vector<float> in = filled(me, kRanks);
    std::vector<float> out(in.size()), part(kPart);
    const auto check_all = [&] {
      for (std::size_t i = 0; i < out.size(); ++i) {
        require(out[i] == sum_of(i / kPart, i % kPart), "a sum");
      }
    };
    both_ways(
        [&](kolo_ticket** ticket) {
          return kolo_all_reduce(world, in.data(), view(out), KOLO_SUM, nullptr, ticket);
        },
        check_all);
    both_ways(
        [&](kolo_ticket** ticket) {
          out = in;
          return kolo_all_reduce(world, nullptr, view(out), KOLO_SUM, nullptr, ticket);
        },
        check_all);
    both_ways(
        [&](kolo_ticket** ticket) {
          return kolo_reduce(world, in.data(), view(out), 1, KOLO_SUM, nullptr, ticket);
        },
        [&] {
          if (me == 1) check_all();
        });
    both_ways(
        [&](kolo_ticket** ticket) {
          return kolo_reduce_scatter(world, in.data(), view(part), KOLO_SUM, nullptr, ticket);
        },
        [&] {
          for (std::size_t i = 0; i < kPart; ++i) {
            require(part[i] == sum_of(static_cast<std::size_t>(me), i), "a part of the sum");
          }
        });
    kolo_call call = KOLO_CALL_INIT;
    call.name = "scaled";
    call.scale_after = 0.5;
    both_ways(
        [&](kolo_ticket** ticket) {
          return kolo_all_reduce(world, in.data(), view(out), KOLO_SUM, &call, ticket);
        },
        [&] { require(out[1] == 0.5F * sum_of(0, 1), "a scaled sum"); });
  });
}

TEST(CCollectives, ThatMove) {
  run_job(kRanks, [](kolo_runtime* runtime) {
    kolo_group* const world = kolo_world(runtime);
    const int me = kolo_group_rank(world);
    const std::vector<float> mine = filled(me, 1), all = filled(me, kRanks);
    std::vector<float> one(kPart), every(kPart * kRanks);
    both_ways(
        [&](kolo_ticket** ticket) {
          one = mine;
          return kolo_broadcast(world, view(one), 2, nullptr, ticket);
        },
        [&] { require(one == filled(2, 1), "a broadcast"); });
    both_ways(
        [&](kolo_ticket** ticket) {
          one.assign(kPart, -1);
          return kolo_broadcast_from(world, me == 2 ? mine.data() : nullptr, view(one), 2, nullptr,
                                     ticket);
        },
        [&] { require(one == filled(2, 1), "a broadcast out of place"); });
    const auto check_every = [&] {
      for (int rank = 0; rank < kRanks; ++rank) {
        for (std::size_t i = 0; i < kPart; ++i) {
          require(every[static_cast<std::size_t>(rank) * kPart + i] == filled(rank, 1)[i], "parts");
        }
      }
    };
    both_ways(
        [&](kolo_ticket** ticket) {
          return kolo_all_gather(world, mine.data(), view(every), nullptr, ticket);
        },
        check_every);
    both_ways(
        [&](kolo_ticket** ticket) {
          std::vector<float>& input = one = mine;
          return kolo_gather(world, view(input), every.data(), 1, nullptr, ticket);
        },
        [&] {
          if (me == 1) check_every();
        });
    both_ways(
        [&](kolo_ticket** ticket) {
          one = mine;
          kolo_buffer input = view(one);
          if (me == 1) {
            input.data = nullptr;
            every.assign(every.size(), -1);
            std::copy(mine.begin(), mine.end(), every.begin() + kPart);
          }
          return kolo_gather(world, input, every.data(), 1, nullptr, ticket);
        },
        [&] {
          if (me == 1) check_every();
        });
    both_ways(
        [&](kolo_ticket** ticket) {
          return kolo_scatter(world, me == 1 ? all.data() : nullptr, view(one), 1, nullptr, ticket);
        },
        [&] { require(one[1] == static_cast<float>(101 + 10 * me), "a part of rank 1"); });
    both_ways(
        [&](kolo_ticket** ticket) {
          one.assign(kPart, -1);
          kolo_buffer result = view(one);
          if (me == 1) result.data = nullptr;
          return kolo_scatter(world, me == 1 ? all.data() : nullptr, result, 1, nullptr, ticket);
        },
        [&] {
          const float expected = me == 1 ? -1.0F : static_cast<float>(101 + 10 * me);
          require(one[1] == expected && all == filled(me, kRanks), "in place at the root");
        });
    both_ways(
        [&](kolo_ticket** ticket) {
          return kolo_all_to_all(world, all.data(), view(every), nullptr, ticket);
        },
        [&] {
          for (int rank = 0; rank < kRanks; ++rank) {
            require(every[static_cast<std::size_t>(rank) * kPart] ==
                        static_cast<float>(100 * rank + 10 * me),
                    "a part of each rank");
          }
        });
    // Parts of one, two and three elements.
    const std::array<std::size_t, kRanks> counts{1, 2, 3};
    kolo_call call = KOLO_CALL_INIT;
    call.counts = counts.data();
    call.num_counts = counts.size();
    std::vector<float> uneven(6);
    both_ways(
        [&](kolo_ticket** ticket) {
          return kolo_all_gather(world, mine.data(), view(uneven), &call, ticket);
        },
        [&] {
          require(uneven == std::vector<float>({0, 100, 101, 200, 201, 202}), "counts");
        });
    both_ways([&](kolo_ticket** ticket) { return kolo_barrier(world, ticket); }, [] {});
  });
}

TEST(CCollectives, GroupedOnes) {
  run_job(kRanks, [](kolo_runtime* runtime) {
    kolo_group* const world = kolo_world(runtime);
    const int me = kolo_group_rank(world);
    const std::vector<float> in = filled(me, kRanks);
    std::vector<float> first(in.size()), second(in.size());
    const kolo_tensor tensors[] = {{in.data(), first.data(), in.size()},
                                   {in.data(), second.data(), kPart}};
    both_ways(
        [&](kolo_ticket** ticket) {
          return kolo_grouped(world, KOLO_ALL_REDUCE, tensors, 2, KOLO_FLOAT32, 0, KOLO_SUM,
                              nullptr, ticket);
        },
        [&] { require(first[6] == sum_of(1, 1) && second[3] == sum_of(0, 3), "sums"); });
    // Two tensors, of which the second begins one element later. `expected` gives element `at` of
    // the result of the tensor that begins at an element; -1: all ranks receive.
    const auto expect_element = [&](kolo_collective collective, std::size_t count, std::size_t at,
                                    int receiver, const auto& expected) {
      const kolo_tensor both[] = {{in.data(), first.data(), count},
                                  {in.data() + 1, second.data(), count}};
      both_ways(
          [&](kolo_ticket** ticket) {
            first.assign(first.size(), -1);
            second.assign(second.size(), -1);
            return kolo_grouped(world, collective, both, 2, KOLO_FLOAT32, 0, KOLO_SUM, nullptr,
                                ticket);
          },
          [&] {
            if (receiver >= 0 && receiver != me) return;
            require(first[at] == expected(0), "the first of a group");
            require(second[at] == expected(1), "the second of a group");
          });
    };
    constexpr int kAll = -1;
    const auto place = static_cast<std::size_t>(me);
    const auto element = [](int rank, std::size_t i) { return filled(rank, kRanks)[i]; };
    const auto sum = [](std::size_t i) { return sum_of(i / kPart, i % kPart); };
    expect_element(KOLO_REDUCE_SCATTER, 4, 3, kAll,
                   [&](std::size_t begin) { return sum(begin + 4 * place + 3); });
    expect_element(KOLO_REDUCE, 4, 2, 0, [&](std::size_t begin) { return sum(begin + 2); });
    expect_element(KOLO_SCATTER, 4, 1, kAll,
                   [&](std::size_t begin) { return element(0, begin + 4 * place + 1); });
    expect_element(KOLO_ALL_TO_ALL, 4, 8, kAll,
                   [&](std::size_t begin) { return element(2, begin + 4 * place); });
    expect_element(KOLO_ALL_GATHER, 2, 5, kAll,
                   [&](std::size_t begin) { return element(2, begin + 1); });
    expect_element(KOLO_GATHER, 2, 5, 0, [&](std::size_t begin) { return element(2, begin + 1); });
    expect_element(KOLO_BROADCAST, 4, 3, kAll,
                   [&](std::size_t begin) { return element(0, begin + 3); });
    // Parts of one, two and three elements, and of none, two and one.
    const std::array<std::size_t, 2 * kRanks> counts{1, 2, 3, 0, 2, 1};
    kolo_call call = KOLO_CALL_INIT;
    call.counts = counts.data();
    call.num_counts = counts.size();
    std::vector<float> six(6), three(3);
    const kolo_tensor uneven[] = {{in.data(), six.data(), 0}, {in.data() + 1, three.data(), 0}};
    both_ways(
        [&](kolo_ticket** ticket) {
          return kolo_grouped(world, KOLO_ALL_GATHER, uneven, 2, KOLO_FLOAT32, 0, KOLO_SUM, &call,
                              ticket);
        },
        [&] {
          require(six == std::vector<float>({0, 100, 101, 200, 201, 202}), "counts of the first");
          require(three == std::vector<float>({101, 102, 201}), "counts of the second");
        });
    call.num_counts = 5;
    require(kolo_grouped(world, KOLO_ALL_GATHER, uneven, 2, KOLO_FLOAT32, 0, KOLO_SUM, &call,
                         nullptr) == KOLO_USAGE,
            "five counts for two tensors");
    second[0] = static_cast<float>(me);
    const kolo_tensor copied[] = {{nullptr, second.data(), 1}};
    ok(kolo_grouped(world, KOLO_BROADCAST, copied, 1, KOLO_FLOAT32, 2, KOLO_SUM, nullptr, nullptr));
    require(second[0] == 2, "a broadcast");
    const kolo_tensor apart[] = {{in.data(), second.data(), kPart}};
    ok(kolo_grouped(world, KOLO_BROADCAST, apart, 1, KOLO_FLOAT32, 1, KOLO_SUM, nullptr, nullptr));
    require(second[3] == filled(1, kRanks)[3], "a broadcast out of place");
  });
}

TEST(CCollectives, MessagesAndTickets) {
  run_job(2, [](kolo_runtime* runtime) {
    kolo_group* const world = kolo_world(runtime);
    std::vector<float> data(kPart, 7), got(2 * kPart);
    if (kolo_group_rank(world) == 0) {
      kolo_received received{};
      ok(kolo_recv(world, view(got), KOLO_ANY_RANK, 3, &received, nullptr));
      require(received.source == 1 && received.count == kPart && got[0] == 7, "a message");
      ok(kolo_send(world, view(data), 1, 4, nullptr));
    } else {
      kolo_ticket* ticket = nullptr;
      int done = 1, descriptor = -1;
      ok(kolo_recv(world, view(got), 0, 4, nullptr, &ticket));
      ok(kolo_ticket_wait(ticket, 0, &done));
      require(done == 0, "a message that was not sent yet");
      ok(kolo_ticket_event(ticket, &descriptor));
      ok(kolo_send(world, view(data), 0, 3, nullptr));
      pollfd event{.fd = descriptor, .events = POLLIN, .revents = 0};
      require(poll(&event, 1, 60'000) == 1, "the event");
      ok(kolo_ticket_test(ticket, &done));
      kolo_received received{};
      ok(kolo_ticket_received(ticket, &received));
      require(done == 1 && received.source == 0 && received.count == kPart, "what was received");
      kolo_ticket_release(ticket);
    }
  });
}

TEST(CCollectives, GroupedMessages) {
  run_job(2, [](kolo_runtime* runtime) {
    kolo_group* const world = kolo_world(runtime);
    const int peer = 1 - kolo_group_rank(world);
    std::vector<float> data(kPart, 7), got(kPart), longer(2 * kPart);
    std::vector<std::int64_t> numbers(3, 1 + kolo_group_rank(world)), others(3);
    const kolo_buffer out[] = {view(data), {numbers.data(), 3, KOLO_INT64, KOLO_HOST}};
    const kolo_buffer in[] = {view(got), {others.data(), 3, KOLO_INT64, KOLO_HOST}};
    for (const bool in_background : {false, true}) {
      kolo_ticket* sent = nullptr;
      ok(kolo_grouped_send(world, out, 2, peer, 6, &sent));
      kolo_received received{};
      if (in_background) {
        kolo_ticket* ticket = nullptr;
        ok(kolo_grouped_recv(world, in, 2, KOLO_ANY_RANK, 6, nullptr, &ticket));
        ok(kolo_ticket_wait(ticket, -1, nullptr));
        ok(kolo_ticket_received(ticket, &received));
        kolo_ticket_release(ticket);
      } else {
        ok(kolo_grouped_recv(world, in, 2, peer, 6, &received, nullptr));
      }
      require(received.source == peer && received.count == kPart + 3, "what was received");
      require(got[kPart - 1] == 7 && others[2] == 1 + peer, "both tensors");
      ok(kolo_ticket_wait(sent, -1, nullptr));
      kolo_ticket_release(sent);
    }
    const kolo_buffer too_long[] = {view(longer), in[1]};
    ok(kolo_grouped_send(world, out, 2, peer, 7, nullptr));
    require(kolo_grouped_recv(world, too_long, 2, peer, 7, nullptr, nullptr) == KOLO_MISMATCH,
            "a mismatch");
    require(kolo_grouped_send(world, nullptr, 2, peer, 7, nullptr) == KOLO_USAGE, "no tensors");
    ok(kolo_barrier(world, nullptr));
  });
}

TEST(CCollectives, AReceiveIsTakenBack) {
  run_job(2, [](kolo_runtime* runtime) {
    kolo_group* const world = kolo_world(runtime);
    const int peer = 1 - kolo_group_rank(world);
    std::vector<float> data(kPart, 7), never(kPart, -1), got(kPart);
    kolo_ticket* ticket = nullptr;
    ok(kolo_recv(world, view(never), peer, 5, nullptr, &ticket));
    ok(kolo_ticket_cancel(ticket));
    require(kolo_ticket_wait(ticket, -1, nullptr) == KOLO_CANCELLED, "the status");
    require(std::string(kolo_last_error()->text).find("with tag 5") != std::string::npos,
            kolo_last_error()->text);
    kolo_ticket_release(ticket);
    ok(kolo_barrier(world, &ticket));
    require(kolo_ticket_cancel(ticket) == KOLO_USAGE, "other ranks take part in a barrier");
    ok(kolo_ticket_wait(ticket, -1, nullptr));
    kolo_ticket_release(ticket);
    ok(kolo_recv(world, view(got), peer, 5, nullptr, &ticket));
    ok(kolo_send(world, view(data), peer, 5, nullptr));
    ok(kolo_ticket_wait(ticket, -1, nullptr));
    kolo_ticket_release(ticket);
    require(got[0] == 7 && never[0] == -1, "the message of the second receive");
  });
}

TEST(CCollectives, Groups) {
  run_job(kRanks, [](kolo_runtime* runtime) {
    kolo_group* const world = kolo_world(runtime);
    const int me = kolo_group_rank(world);
    kolo_group* pair = nullptr;
    kolo_group* node = nullptr;
    kolo_group* cross = nullptr;
    if (me != 1) {
      const int32_t ranks[] = {2, 0};
      kolo_group_options options = KOLO_GROUP_OPTIONS_INIT;
      options.name = "ends";
      options.arena_bytes = 1 << 20;
      ok(kolo_group_create(world, ranks, 2, &options, &pair));
      std::array<int32_t, 2> of_job{};
      kolo_group_ranks(pair, of_job.data());
      require(kolo_group_size(pair) == 2 && of_job == std::array<int32_t, 2>{2, 0}, "the pair");
      std::vector<float> data(kPart, static_cast<float>(me));
      ok(kolo_all_reduce(pair, nullptr, view(data), KOLO_SUM, nullptr, nullptr));
      require(data[0] == 2, "a sum in the pair");
      ok(kolo_group_close(pair));
      kolo_group_release(pair);
    }
    kolo_group_options small = KOLO_GROUP_OPTIONS_INIT;
    small.arena_bytes = 1 << 20;
    ok(kolo_group_split(world, me == 0 ? -1 : 5, -me, &small, &pair));
    require((pair == nullptr) == (me == 0), "a negative color gets no group");
    if (pair != nullptr) require(kolo_group_rank(pair) == 2 - me, "by key");
    kolo_group_release(pair);
    ok(kolo_group_node(world, &small, &node));
    ok(kolo_group_cross(world, &small, &cross));
    require(kolo_group_size(node) == kRanks && kolo_group_size(cross) == 1, "places");
    kolo_group_release(node);
    kolo_group_release(cross);
    kolo_group_release(world);  // Belongs to the runtime.
    ok(kolo_barrier(world, nullptr));
  });
}

}  // namespace
}  // namespace c_test
