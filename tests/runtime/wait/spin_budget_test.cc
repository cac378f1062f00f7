#include "runtime/wait/spin_budget.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <utility>
#include <vector>

namespace kolo {
namespace {

using std::chrono::microseconds;

constexpr std::size_t kNoQuota = 1000;

/// Of ranks that are one node and all of its machine.
SpinBudget budget_of(const std::vector<CoreUse>& ranks, microseconds spin = microseconds(-1),
                     int reduce_threads = 0) {
  return spin_budget({.node = ranks, .machine = ranks}, kNoQuota, spin, reduce_threads);
}
int spare_on(const std::vector<CoreUse>& ranks, std::size_t granted = kNoQuota) {
  return spare_reduce_threads({.node = ranks, .machine = ranks}, granted);
}

std::atomic<int> cores_given_away = 0;

TEST(SpinBudget, CoresThatRanksShareAreCountedOnce) {
  const CoreUse both{.cores = {0, 1}, .threads = 1};
  EXPECT_TRUE(fit(std::vector<CoreUse>{both, both}, kNoQuota));
  EXPECT_FALSE(fit(std::vector<CoreUse>{both, both, both}, kNoQuota));
  EXPECT_FALSE(fit(std::vector<CoreUse>{both, both}, kNoQuota, 1)) << "with engine threads";
}

TEST(SpinBudget, RanksOnCoresOfTheirOwnFit) {
  const std::vector<CoreUse> bound = {{.cores = {0}}, {.cores = {1}}};
  EXPECT_TRUE(fit(bound, kNoQuota));
  EXPECT_FALSE(
      fit(std::vector<CoreUse>{{.cores = {0}}, {.cores = {0}}, {.cores = {1, 2}}}, kNoQuota))
      << "two on one core, whatever else is free";
  EXPECT_FALSE(fit(
      std::vector<CoreUse>{{.cores = {0, 1, 2}}, {.cores = {0}}, {.cores = {1}}, {.cores = {2}}},
      kNoQuota))
      << "four on three";
}

TEST(SpinBudget, ThreadsThatComputeCount) {
  EXPECT_TRUE(fit(std::vector<CoreUse>{{.cores = {0, 1, 2, 3}, .threads = 4}}, kNoQuota));
  EXPECT_FALSE(fit(std::vector<CoreUse>{{.cores = {0, 1, 2, 3}, .threads = 5}}, kNoQuota));
}

TEST(SpinBudget, AQuotaCapsAllCoresTogether) {
  const std::vector<CoreUse> bound = {{.cores = {0}}, {.cores = {1}}};
  EXPECT_FALSE(fit(bound, 1));
  EXPECT_TRUE(fit(bound, 2));
}

TEST(SpinBudget, NobodyKeepsACoreThatSomebodyNeeds) {
  const CoreUse both{.cores = {0, 1}};
  const SpinBudget tight = budget_of({both, both});
  EXPECT_GT(tight.keeps_core, Duration::zero());
  EXPECT_GT(tight.user.count(), 0);
  EXPECT_EQ(tight.engine.count(), 0) << "it would take the core of a computing thread";
  const SpinBudget full = budget_of({both, both, both});
  EXPECT_EQ(full.keeps_core, Duration::zero());
  const SpinBudget wide = budget_of({both}, microseconds(7));
  EXPECT_EQ(wide.user, microseconds(7));
  EXPECT_EQ(wide.user_most, microseconds(7)) << "as the user wants it";
  EXPECT_GT(full.user_most, full.user);
  EXPECT_EQ(wide.engine, microseconds(7));
}

// Nodes that are played on one machine, or containers of their own there.
TEST(SpinBudget, NodesOfOneMachineShareItsCores) {
  const CoreUse both{.cores = {0, 1}};
  const auto budget = [&](std::vector<CoreUse> machine, std::size_t granted) {
    return spin_budget({.node = {both}, .machine = std::move(machine)}, granted, microseconds(-1));
  };
  EXPECT_GT(budget({both, both}, kNoQuota).keeps_core, Duration::zero());
  EXPECT_EQ(budget({both, both, both}, kNoQuota).keeps_core, Duration::zero());
  EXPECT_EQ(budget({both, both}, kNoQuota).engine.count(), 0);
  // The quota is the node's and not the machine's.
  EXPECT_GT(budget({both, both}, 1).keeps_core, Duration::zero());
}

TEST(SpinBudget, ReduceThreadsTakeCoresThatNobodyNeeds) {
  const auto on_shared_cores = [](std::size_t ranks, int cores, std::size_t threads) {
    CoreUse use{.cores = {}, .threads = threads};
    for (int core = 0; core < cores; ++core) use.cores.push_back(core);
    return spare_on(std::vector<CoreUse>(ranks, use));
  };
  EXPECT_EQ(on_shared_cores(2, 2, 1), 0) << "taken by ranks";
  EXPECT_EQ(on_shared_cores(2, 4, 1), 0) << "engines have two of them";
  EXPECT_EQ(on_shared_cores(2, 6, 1), 1);
  EXPECT_EQ(on_shared_cores(2, 7, 1), 1) << "the same for each rank";
  EXPECT_EQ(on_shared_cores(2, 6, 2), 0) << "taken by computing threads";
  EXPECT_EQ(on_shared_cores(1, 64, 1), 3) << "more do not move bytes faster";
  EXPECT_EQ(on_shared_cores(4, 2, 1), 0) << "ranks outnumber cores";
}

TEST(SpinBudget, ReduceThreadsCountWhereRanksMayRun) {
  const std::vector<CoreUse> bound = {{.cores = {0}}, {.cores = {1, 2, 3, 4}}};
  EXPECT_EQ(spare_on(bound), 0) << "rank 0 has one core, whatever is free";
  CoreUse eight{.cores = {0, 1, 2, 3, 4, 5, 6, 7}};
  EXPECT_EQ(spare_on({eight, eight}), 2);
  EXPECT_EQ(spare_on({eight, eight}, 6), 1) << "quota";
}

TEST(SpinBudget, ReduceThreadsLookOnlyOnCoresOfTheirOwn) {
  const CoreUse four{.cores = {0, 1, 2, 3}};
  const std::vector<CoreUse> ranks = {four};
  EXPECT_GT(budget_of(ranks, microseconds(-1), 2).helper.count(), 0);
  const SpinBudget tight = budget_of(ranks, microseconds(-1), 3);
  EXPECT_EQ(tight.helper.count(), 0) << "one core is the engine's";
  EXPECT_GT(tight.keeps_core.count(), 0);
  EXPECT_EQ(budget_of(ranks, microseconds(-1), 4).keeps_core.count(), 0)
      << "somebody else needs it";
}

TEST(Patience, LastsAsLongAsItsBudgetSays) {
  constexpr Duration kLong = std::chrono::hours(1);
  Patience patience;
  EXPECT_FALSE(patience.pass(Duration::zero(), kLong)) << "nobody wants to wait";
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(patience.pass(kLong, i == 1 ? kLong : Duration::zero()));
  EXPECT_FALSE(patience.pass(Duration(1), kLong)) << "some time has passed";
  patience.renew();
  EXPECT_TRUE(patience.pass(Duration(1), kLong));
}

TEST(Patience, GivesItsCoreAwayOnceItHasKeptItForLongEnough) {
  constexpr Duration kLong = std::chrono::hours(1);
  Patience patience;
  cores_given_away = 0;
  for (int i = 0; i < 1000; ++i) patience.pass(kLong, kLong);
  EXPECT_EQ(cores_given_away, 0);
  patience.renew();
  for (int i = 0; i < 10; ++i) patience.pass(kLong, Duration::zero());
  EXPECT_EQ(cores_given_away, 10);

  patience.renew();
  const Duration keeps = budget_of({{.cores = {0}, .threads = 1}}).keeps_core;
  patience.pass(kLong, keeps);
  cores_given_away = 0;
  const TimePoint start = std::chrono::steady_clock::now();
  while (cores_given_away == 0) patience.pass(kLong, keeps);
  EXPECT_GE(std::chrono::steady_clock::now() - start, keeps);
}

TEST(SpinBudget, CoreUseSurvivesTheWayAsText) {
  const CoreUse use = own_core_use();
  EXPECT_FALSE(use.cores.empty());
  const CoreUse copy = core_use_of(to_text(use));
  EXPECT_EQ(copy.cores, use.cores);
  EXPECT_EQ(copy.threads, use.threads);
  EXPECT_EQ(core_use_of("nonsense").threads, 1u);
  EXPECT_GT(granted_cores(), 0u);
}

}  // namespace
}  // namespace kolo

// In place of the C library's, for the binary of this test.
extern "C" int sched_yield() noexcept {
  ++kolo::cores_given_away;
  return 0;
}
