#include "comm/schedule/reduce_team.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "tests/support/allocations.h"

namespace kolo {
namespace {

/// Helpers sleep immediately, poll for a while, or never sleep.
constexpr std::array<WaitPolicy, 3> kPolicies = {
    WaitPolicy{},
    WaitPolicy{.background_spin = std::chrono::microseconds(20),
               .keep_core = std::chrono::microseconds(2)},
    WaitPolicy{.background_spin = std::chrono::hours(1)}};

TEST(ReduceTeam, DoesEachPieceOnce) {
  for (const WaitPolicy& policy : kPolicies) {
    for (const int helpers : {0, 1, 3}) {
      ReduceTeam team(helpers, policy);
      EXPECT_EQ(team.size(), static_cast<std::size_t>(helpers) + 1);
      for (const std::size_t pieces : std::initializer_list<std::size_t>{0, 1, 2, 5, 1000}) {
        std::vector<int> done(pieces);  // not atomic, so that ThreadSanitizer detects races
        for (int run = 0; run < 20; ++run) {
          team.run(pieces, [&](std::size_t piece, std::size_t) { ++done.at(piece); });
        }
        EXPECT_EQ(done, std::vector<int>(pieces, 20)) << helpers << " helpers";
      }
    }
  }
}

TEST(ReduceTeam, MembersAreToldApart) {
  ReduceTeam team(3, {.background_spin = std::chrono::hours(1)});
  std::vector<int> by_member(team.size());
  for (int run = 0; run < 200; ++run) {
    team.run(8, [&](std::size_t, std::size_t member) { ++by_member.at(member); });
  }
  int all = 0;
  for (const int count : by_member) all += count;
  EXPECT_EQ(all, 200 * 8);
}

// Two pieces that wait for each other can end only if two threads process them.
TEST(ReduceTeam, HelpersHelp) {
  for (const WaitPolicy& policy : kPolicies) {
    ReduceTeam team(1, policy);
    for (int run = 0; run < 50; ++run) {
      std::atomic<int> arrived{0};
      std::vector<std::thread::id> threads(2);
      team.run(2, [&](std::size_t piece, std::size_t) {
        threads.at(piece) = std::this_thread::get_id();
        ++arrived;
        while (arrived < 2) std::this_thread::yield();
      });
      ASSERT_NE(threads[0], threads[1]);
    }
  }
}

TEST(ReduceTeam, SeesWhatTheCallerHasWrittenAndTheReverse) {
  ReduceTeam team(2, {});
  std::size_t in = 0;
  std::vector<std::size_t> out(16);
  for (in = 1; in <= 100; ++in) {
    team.run(out.size(), [&](std::size_t piece, std::size_t) { out[piece] = in; });
    EXPECT_EQ(out, std::vector<std::size_t>(out.size(), in));
  }
}

TEST(ReduceTeam, ThrowsWhatAPieceThrowsAndGoesOn) {
  for (const WaitPolicy& policy : kPolicies) {
    for (const int helpers : {0, 1, 3}) {
      ReduceTeam team(helpers, policy);
      for (std::size_t faulty = 0; faulty < 8; ++faulty) {
        const auto work = [&](std::size_t piece, std::size_t) {
          if (piece == faulty) throw std::runtime_error("a piece");
        };
        EXPECT_THROW(team.run(8, work), std::runtime_error);
        std::atomic<int> done{0};
        team.run(8, [&](std::size_t, std::size_t) { ++done; });
        EXPECT_EQ(done, 8);
      }
    }
  }
}

TEST(ReduceTeam, AllocatesNothing) {
  ReduceTeam team(2, {});
  std::atomic<std::size_t> helpers_calls{0};
  const auto work = [&](std::size_t, std::size_t) {
    thread_local const test::AllocationCounter allocations;
    helpers_calls += allocations.calls();
  };
  const test::AllocationCounter allocations;
  for (int run = 0; run < 20; ++run) team.run(64, work);
  EXPECT_EQ(allocations.calls(), 0u);
  EXPECT_EQ(helpers_calls, 0u);
}

// Helpers may be asleep, polling, or not started yet.
TEST(ReduceTeam, EndsWheneverNothingRuns) {
  for (const WaitPolicy& policy : kPolicies) {
    for (int i = 0; i < 20; ++i) {
      ReduceTeam team(3, policy);
      if (i % 2 == 1) team.run(5, [](std::size_t, std::size_t) {});
    }
  }
}

}  // namespace
}  // namespace kolo
