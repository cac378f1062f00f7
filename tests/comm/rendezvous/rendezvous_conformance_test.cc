// Runs the conformance suite on all rendezvous, and gathers several texts per rank in one round.

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "comm/rendezvous/batched_exchange.h"
#include "comm/rendezvous/rendezvous.h"
#include "comm/rendezvous/tcp_rendezvous.h"
#include "comm/rendezvous/tcp_socket.h"
#include "tests/comm/rendezvous/rendezvous_conformance.h"
#include "tests/support/memory_rendezvous.h"
#include "tests/support/rank_harness.h"
#include "tests/support/sanitized.h"

namespace kolo {
namespace {

constexpr std::chrono::seconds kTimeout{60};

/// Makes a function that returns the endpoint of a rank. Each rank's thread calls it once.
using MakeJob = std::function<std::function<std::unique_ptr<Rendezvous>(int rank)>(int size)>;

std::function<std::unique_ptr<Rendezvous>(int)> store_job(int size) {
  auto endpoints = std::make_shared<std::vector<std::unique_ptr<Rendezvous>>>(
      make_memory_rendezvous(size, kTimeout));
  return [endpoints](int rank) { return std::move((*endpoints)[static_cast<std::size_t>(rank)]); };
}

std::function<std::unique_ptr<Rendezvous>(int)> tcp_job(int size, const std::string& host) {
  auto listener = std::make_shared<FileDescriptor>(listen_on(host, 0));
  const std::uint16_t port = port_of(listener->get());
  return [=](int rank) {
    const TcpOptions options{.rank = rank,
                             .size = size,
                             .host = host,
                             .port = port,
                             .job_id = "conformance",
                             .timeout = kTimeout};
    return rank == 0 ? make_tcp_rendezvous(options, std::move(*listener))
                     : make_tcp_rendezvous(options);
  };
}

struct Case {
  const char* name;
  int size;
  MakeJob make_job;
};

void PrintTo(const Case& tested, std::ostream* out) { *out << tested.name << tested.size; }

class RendezvousConformance : public ::testing::TestWithParam<Case> {};

TEST_P(RendezvousConformance, EveryRankGetsWhatEachGave) {
  const Case& tested = GetParam();
  const auto endpoint = tested.make_job(tested.size);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < tested.size; ++rank) {
    ranks.emplace_back([&, rank] {
      const std::unique_ptr<Rendezvous> rendezvous = endpoint(rank);
      testing::expect_conforming(*rendezvous, rank, tested.size);
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

std::vector<Case> cases() {
  std::vector<Case> all;
  all.push_back({"Single", 1, [](int) -> std::function<std::unique_ptr<Rendezvous>(int)> {
                   return [](int) { return std::make_unique<SingleRendezvous>(); };
                 }});
  const auto sizes =
      test::kSanitized ? std::vector<int>{1, 2, 3, 4} : std::vector<int>{1, 2, 3, 4, 5, 8};
  for (const int size : sizes) {
    all.push_back({"Store", size, store_job});
    all.push_back({"Tcp", size, [](int ranks) { return tcp_job(ranks, "127.0.0.1"); }});
  }
  all.push_back({"TcpByName", 3, [](int ranks) { return tcp_job(ranks, "localhost"); }});
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, RendezvousConformance, ::testing::ValuesIn(cases()),
                         [](const auto& tested) {
                           return tested.param.name + std::to_string(tested.param.size);
                         });

TEST(BatchedExchange, TakesOneRoundForAllNames) {
  auto endpoints = make_memory_rendezvous(3, std::chrono::seconds(60));
  test::run_ranks(3, [&](const test::RankRun& run) {
    CountedRendezvous rendezvous(*endpoints[static_cast<std::size_t>(run.rank())]);
    BatchedExchange exchange(rendezvous);
    exchange.post("rank", std::to_string(run.rank()));
    if (run.rank() == 0) exchange.post("secret", std::string("a\0b", 3));
    if (run.rank() == 2) exchange.post("late", "");
    exchange.run();
    EXPECT_EQ(exchange.texts("rank"), (std::vector<std::string>{"0", "1", "2"}));
    EXPECT_EQ(exchange.text_of_rank_0("secret"), std::string("a\0b", 3));
    EXPECT_EQ(exchange.texts("secret")[1], "");
    EXPECT_EQ(exchange.texts("nobody's"), std::vector<std::string>(3));
    exchange.post("rank", "again");
    exchange.run();
    EXPECT_EQ(exchange.texts("rank"), std::vector<std::string>(3, "again"));
    EXPECT_EQ(exchange.text_of_rank_0("secret"), std::string("a\0b", 3));
    EXPECT_EQ(rendezvous.rounds(), 2);
  });
}

}  // namespace

}  // namespace kolo
