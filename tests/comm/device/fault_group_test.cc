#include "tests/support/fault_group.h"

#include <gtest/gtest.h>

#include "tests/comm/device/host_group_job.h"

namespace kolo::test {
namespace {

constexpr std::size_t kCount = 16;
constexpr int kRanks = 3;
constexpr int kCalls = 4;
constexpr std::chrono::seconds kWithin{5};

/// Three ranks, of which rank 1 has faults; each sums numbers of its own again and again.
class FaultyJob {
 public:
  explicit FaultyJob(FaultPlan plan, std::uint64_t seed = 1)
      : job_(kRanks, seed, [plan](std::unique_ptr<LocalGroup> group) {
          const bool is_faulty = group->rank() == 1;
          return std::make_unique<FaultGroup>(std::move(group), is_faulty ? plan : FaultPlan{});
        }) {
    for (int rank = 0; rank < kRanks; ++rank) {
      desks_.emplace_back(job_.device(rank), group(rank), kCount * sizeof(float));
    }
  }

  LocalGroup& group(int rank) { return *job_.group(rank); }
  GroupDesk& desk(int rank) { return desks_[static_cast<std::size_t>(rank)]; }

  void call_all() {
    for (int call = 0; call < kCalls; ++call) {
      for (int rank = 0; rank < kRanks; ++rank) {
        GroupDesk& mine = desk(rank);
        write_values(mine.given, DType::kFloat32, std::vector<double>(kCount, rank + 1));
        if (call == 0) mine.upload(mine.source, kCount * sizeof(float));
        group(rank).all_reduce(*mine.stream, mine.source.data(), mine.source.data(), kCount,
                               DType::kFloat32, ReduceOp::kMax);
        mine.download(mine.source, 0, kCount * sizeof(float));
      }
    }
  }

  /// Steps until everything on all streams is complete; false if it does not come.
  bool completes() {
    for (int idle = 0; idle < 100; idle = job_.step() ? 0 : idle + 1) {
      bool done = true;
      for (int rank = 0; rank < kRanks; ++rank) done &= desk(rank).finished->done();
      if (done) return true;
    }
    return false;
  }

  void expect_results() {
    for (int rank = 0; rank < kRanks; ++rank) {
      EXPECT_EQ(read_values(desk(rank).taken, DType::kFloat32, kCount),
                std::vector<double>(kCount, kRanks))
          << "rank " << rank;
    }
  }

  void abort_all() {
    for (int rank = 0; rank < kRanks; ++rank) EXPECT_TRUE(group(rank).abort(kWithin));
  }

 private:
  SeededGroupJob job_;
  std::vector<GroupDesk> desks_;
};

TEST(FaultGroup, WithoutAPlanIsTheGroupThatItHolds) {
  FaultyJob job({});
  job.call_all();
  EXPECT_TRUE(job.completes());
  job.expect_results();
  for (int rank = 0; rank < kRanks; ++rank) job.group(rank).finalize();
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(job.group(rank).finalize(), GroupState::kFinalized);
  }
}

TEST(FaultGroup, ALateRankOnlyDelaysTheOthers) {
  FaultyJob job({.delay_polls = 30});
  job.call_all();
  EXPECT_TRUE(job.completes());
  job.expect_results();
  for (int rank = 0; rank < kRanks; ++rank) EXPECT_FALSE(job.group(rank).async_error());
}

TEST(FaultGroup, AFrozenRankHoldsAllStreamsUntilEachRankAborts) {
  FaultyJob job({.freeze_at = 2});
  job.call_all();
  EXPECT_FALSE(job.completes());
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_FALSE(job.desk(rank).finished->done()) << "rank " << rank;
    EXPECT_FALSE(job.group(rank).async_error()) << "nobody can know";
  }
  EXPECT_EQ(job.group(1).finalize(), GroupState::kFinalizing);
  job.abort_all();
  EXPECT_TRUE(job.completes());
}

TEST(FaultGroup, AFailureIsReportedFromItsCallOn) {
  FaultyJob job({.fail_at = 0});
  EXPECT_FALSE(job.group(1).async_error());
  job.call_all();
  EXPECT_FALSE(job.completes());
  ASSERT_TRUE(job.group(1).async_error());
  EXPECT_EQ(job.group(1).async_error()->code, ErrorCode::kInternal);
  EXPECT_FALSE(job.group(0).async_error());
  EXPECT_EQ(job.group(1).finalize(), GroupState::kAborted);
  ASSERT_TRUE(job.group(0).async_error()) << "the abort reaches the peers";
  EXPECT_EQ(job.group(0).async_error()->peer, 1);
  job.abort_all();
  EXPECT_TRUE(job.completes());
}

TEST(FaultGroup, AnAbortThatHangsLeavesTheStreamStandingUntilTheGroupGoes) {
  FaultyJob job({.freeze_at = 0, .abort_hangs = true});
  job.call_all();
  EXPECT_TRUE(job.group(0).abort(kWithin));
  EXPECT_TRUE(job.group(2).abort(kWithin));
  EXPECT_FALSE(job.group(1).abort(kWithin));
  EXPECT_FALSE(job.completes());
  EXPECT_TRUE(job.desk(0).finished->done() && job.desk(2).finished->done());
  EXPECT_FALSE(job.desk(1).finished->done());
}

TEST(FaultGroup, EverySeedEitherCompletesOrIsEndedByAborts) {
  int completed = 0;
  constexpr int kSeeds = 200;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    const FaultPlan plan = seeded_fault(seed, kCalls);
    FaultyJob job(plan, seed);
    job.call_all();
    const bool done = job.completes();
    EXPECT_EQ(done, !plan.freeze_at && !plan.fail_at);
    EXPECT_EQ(job.group(1).async_error().has_value(), plan.fail_at.has_value());
    if (done) {
      ++completed;
      job.expect_results();
    } else {
      job.abort_all();
      EXPECT_TRUE(job.completes());
    }
  }
  EXPECT_GT(completed, 0);
  EXPECT_LT(completed, kSeeds);
}

}  // namespace
}  // namespace kolo::test
