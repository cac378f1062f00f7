// Several texts of all ranks in one round.

#include "comm/rendezvous/batched_exchange.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "tests/support/memory_rendezvous.h"
#include "tests/support/rank_harness.h"

namespace kolo {
namespace {

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
