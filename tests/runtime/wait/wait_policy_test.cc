#include "runtime/wait/wait_policy.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>

#include "tests/support/temporary_directory.h"

namespace kolo {
namespace {

using std::chrono::microseconds;

constexpr std::size_t kNoQuota = 1000;

/// Returns the policy for ranks that are one node and use its whole machine.
WaitPolicy policy_of(const std::vector<CoreUse>& ranks, microseconds spin = microseconds(-1),
                     int reduce_threads = 0) {
  return choose_wait_policy({.node = ranks, .machine = ranks}, kNoQuota, spin, reduce_threads);
}
int spare_on(const std::vector<CoreUse>& ranks, std::size_t granted = kNoQuota) {
  return spare_reduce_threads({.node = ranks, .machine = ranks}, granted);
}

std::atomic<int> yields = 0;

TEST(CoreUse, CoresThatRanksShareAreCountedOnce) {
  const CoreUse both{.cores = {0, 1}, .threads = 1};
  EXPECT_TRUE(fit(std::vector<CoreUse>{both, both}, kNoQuota));
  EXPECT_FALSE(fit(std::vector<CoreUse>{both, both, both}, kNoQuota));
  EXPECT_FALSE(fit(std::vector<CoreUse>{both, both}, kNoQuota, 1)) << "with engine threads";
}

TEST(CoreUse, RanksOnCoresOfTheirOwnFit) {
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

TEST(CoreUse, ThreadsThatComputeCount) {
  EXPECT_TRUE(fit(std::vector<CoreUse>{{.cores = {0, 1, 2, 3}, .threads = 4}}, kNoQuota));
  EXPECT_FALSE(fit(std::vector<CoreUse>{{.cores = {0, 1, 2, 3}, .threads = 5}}, kNoQuota));
}

TEST(CoreUse, AQuotaCapsAllCoresTogether) {
  const std::vector<CoreUse> bound = {{.cores = {0}}, {.cores = {1}}};
  EXPECT_FALSE(fit(bound, 1));
  EXPECT_TRUE(fit(bound, 2));
}

TEST(WaitPolicy, NoThreadKeepsACoreThatAnotherNeeds) {
  const CoreUse both{.cores = {0, 1}};
  const WaitPolicy tight = policy_of({both, both});
  EXPECT_GT(tight.keep_core, Duration::zero());
  EXPECT_GT(tight.spin, kSleepCost);
  EXPECT_EQ(tight.background_spin.count(), 0) << "it would take the core of a computing thread";
  const WaitPolicy full = policy_of({both, both, both});
  EXPECT_EQ(full.keep_core, Duration::zero());
  EXPECT_EQ(full.spin, kSleepCost);
  EXPECT_EQ(full.background_spin.count(), 0);
}

TEST(WaitPolicy, TheOptionSetsHowLongThreadsPoll) {
  const CoreUse both{.cores = {0, 1}};
  for (const microseconds spin : {microseconds(0), microseconds(7)}) {
    EXPECT_EQ(policy_of({both}, spin).spin, spin);
    EXPECT_EQ(policy_of({both}, spin).background_spin, spin);
    EXPECT_EQ(policy_of({both, both, both}, spin).spin, spin);
  }
}

// Several nodes are emulated on one machine, or are containers on it.
TEST(WaitPolicy, NodesOfOneMachineShareItsCores) {
  const CoreUse both{.cores = {0, 1}};
  const auto policy = [&](std::vector<CoreUse> machine, std::size_t granted) {
    return choose_wait_policy({.node = {both}, .machine = std::move(machine)}, granted,
                              microseconds(-1));
  };
  EXPECT_GT(policy({both, both}, kNoQuota).keep_core, Duration::zero());
  EXPECT_EQ(policy({both, both, both}, kNoQuota).keep_core, Duration::zero());
  EXPECT_EQ(policy({both, both}, kNoQuota).background_spin.count(), 0);
  // The quota is the node's, not the machine's.
  EXPECT_GT(policy({both, both}, 1).keep_core, Duration::zero());
}

TEST(CoreUse, ReduceThreadsTakeCoresThatNobodyNeeds) {
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

TEST(CoreUse, ReduceThreadsCountWhereRanksMayRun) {
  const std::vector<CoreUse> bound = {{.cores = {0}}, {.cores = {1, 2, 3, 4}}};
  EXPECT_EQ(spare_on(bound), 0) << "rank 0 has one core, whatever is free";
  CoreUse eight{.cores = {0, 1, 2, 3, 4, 5, 6, 7}};
  EXPECT_EQ(spare_on({eight, eight}), 2);
  EXPECT_EQ(spare_on({eight, eight}, 6), 1) << "quota";
}

TEST(WaitPolicy, ReduceThreadsPollOnlyOnCoresOfTheirOwn) {
  const CoreUse four{.cores = {0, 1, 2, 3}};
  const std::vector<CoreUse> ranks = {four};
  EXPECT_GT(policy_of(ranks, microseconds(-1), 2).background_spin.count(), 0);
  const WaitPolicy tight = policy_of(ranks, microseconds(-1), 3);
  EXPECT_EQ(tight.background_spin.count(), 0) << "one core is the engine's";
  EXPECT_GT(tight.keep_core.count(), 0);
  EXPECT_EQ(policy_of(ranks, microseconds(-1), 4).keep_core.count(), 0)
      << "another thread needs it";
}

TEST(Spinner, StopsWhenItsTimeIsUsedUp) {
  constexpr Duration kLong = std::chrono::hours(1);
  Spinner spinner;
  EXPECT_FALSE(spinner.pass(Duration::zero(), kLong)) << "it is not to poll at all";
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(spinner.pass(kLong, i == 1 ? kLong : Duration::zero()));
  EXPECT_FALSE(spinner.pass(Duration(1), kLong)) << "some time has passed";
  spinner.renew();
  EXPECT_TRUE(spinner.pass(Duration(1), kLong));
}

TEST(Spinner, YieldsItsCoreOnceItHasKeptItForLongEnough) {
  constexpr Duration kLong = std::chrono::hours(1);
  Spinner spinner;
  yields = 0;
  for (int i = 0; i < 1000; ++i) spinner.pass(kLong, kLong);
  EXPECT_EQ(yields, 0);
  spinner.renew();
  for (int i = 0; i < 10; ++i) spinner.pass(kLong, Duration::zero());
  EXPECT_EQ(yields, 10);

  spinner.renew();
  const Duration keep_core = policy_of({{.cores = {0}, .threads = 1}}).keep_core;
  spinner.pass(kLong, keep_core);
  yields = 0;
  const TimePoint start = std::chrono::steady_clock::now();
  while (yields == 0) spinner.pass(kLong, keep_core);
  EXPECT_GE(std::chrono::steady_clock::now() - start, keep_core);
}

TEST(WaitHabit, IsThatOfTheLastWait) {
  WaitHabit habit;
  EXPECT_FALSE(habit.expects_wait());
  habit.waits(microseconds(1));
  EXPECT_TRUE(habit.expects_wait());
  habit.waits(microseconds(500));
  EXPECT_FALSE(habit.expects_wait()) << "it computed before it waited";
}

TEST(CoreUse, ReadsBackFromText) {
  const CoreUse use = own_core_use();
  EXPECT_FALSE(use.cores.empty());
  const CoreUse copy = core_use_of(to_text(use));
  EXPECT_EQ(copy.cores, use.cores);
  EXPECT_EQ(copy.threads, use.threads);
  EXPECT_EQ(core_use_of("nonsense").threads, 1u);
  EXPECT_GT(granted_cores(), 0u);
}

TEST(CoreUse, QuotasOfBothVersionsOfControlGroupsCount) {
  const std::size_t all = granted_cores(test::TemporaryDirectory().path());
  struct Case {
    std::string groups, folder, file, text;
    std::size_t expected;
  };
  const std::string job = "4:memory:/job\n3:cpu,cpuacct:/job/rank\n";
  const Case cases[] = {
      {"0::/job/rank\n", "job", "cpu.max", "150000 100000", 1},
      {"0::/job/rank\n", "job", "cpu.max", "max 100000", all},
      {job, "cpu/job", "cpu.cfs_quota_us", "150000", 1},
      {job, "cpu/job/rank", "cpu.cfs_quota_us", "50000", 1},
      {job, "cpu/job", "cpu.cfs_quota_us", "-1", all},
      {job, "memory/job", "cpu.cfs_quota_us", "100000", all},
  };
  for (const Case& each : cases) {
    const test::TemporaryDirectory system;
    const std::filesystem::path folder = system.path() / "sys/fs/cgroup" / each.folder;
    std::filesystem::create_directories(folder);
    std::filesystem::create_directories(system.path() / "proc/self");
    std::ofstream(system.path() / "proc/self/cgroup") << each.groups;
    std::ofstream(folder / each.file) << each.text << "\n";
    std::ofstream(folder / "cpu.cfs_period_us") << "100000\n";
    EXPECT_EQ(granted_cores(system.path()), each.expected) << each.folder << ' ' << each.text;
  }
}

}  // namespace
}  // namespace kolo

// This replaces the C library's function in this test's binary.
extern "C" int sched_yield() noexcept {
  ++kolo::yields;
  return 0;
}
