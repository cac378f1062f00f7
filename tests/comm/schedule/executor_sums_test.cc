#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <random>
#include <stdexcept>

#include "tests/comm/schedule/executor_rank.h"
#include "tests/support/rank_harness.h"

namespace kolo {
namespace {

using test::all_layouts;
using test::Job;
using test::make_ranks;
using test::Rank;

class ExecutorJobs : public testing::TestWithParam<Job> {
 protected:
  static constexpr std::uint64_t kIterations = 2;

  CompileOptions options() const {
    return {.algorithm = GetParam().algorithm, .chunk_bytes = 256, .window = 2};
  }

  void expect_exact_for_any_interleaving(const std::vector<BucketLayout>& layouts,
                                         std::uint64_t seed) const;
  void expect_exact_with_a_thread_per_rank(const std::vector<BucketLayout>& layouts) const;
};

// Ranks do not wait for each other. Each starts the next iteration of a bucket some time after it
// has finished the last one, while other ranks are behind or ahead.
void ExecutorJobs::expect_exact_for_any_interleaving(const std::vector<BucketLayout>& layouts,
                                                     std::uint64_t seed) const {
  SCOPED_TRACE(text(GetParam()) + " seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  InProcessHub hub(ProcessGrid::with_node_sizes(GetParam().nodes));
  const auto ranks = make_ranks(hub);
  std::vector<std::pair<std::size_t, BucketId>> starts;  // (rank, bucket) that are not started yet
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    for (BucketId bucket = 0; bucket < layouts.size(); ++bucket) {
      starts.emplace_back(rank, bucket);
      ranks[rank]->add(layouts[bucket], hub.grid(), options());
    }
  }
  std::vector<std::vector<std::uint64_t>> iterations(ranks.size());  // by rank and bucket
  for (auto& of_rank : iterations) of_rank.resize(layouts.size());
  std::size_t unfinished = ranks.size() * layouts.size();
  for (std::size_t steps = 0; unfinished > 0; ++steps) {
    ASSERT_LT(steps, 1'000'000u);
    if (!starts.empty() && random() % 2 == 0) {
      std::swap(starts[random() % starts.size()], starts.back());
      const auto [rank, bucket] = starts.back();
      starts.pop_back();
      ranks[rank]->start(bucket, iterations[rank][bucket]);
    }
    const std::size_t polled = random() % ranks.size();
    Rank& rank = *ranks[polled];
    rank.poll();
    for (BucketId bucket : rank.executor().take_finished()) {
      std::uint64_t& iteration = iterations[polled][bucket];
      ASSERT_EQ(rank.wrong(bucket, iteration), "");
      if (++iteration < kIterations) {
        starts.emplace_back(polled, bucket);
      } else {
        --unfinished;
      }
    }
  }
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    EXPECT_FALSE(ranks[rank]->executor().busy());
    EXPECT_EQ(ranks[rank]->transport().failure(), std::nullopt);
    for (BucketId bucket = 0; bucket < layouts.size(); ++bucket) {
      EXPECT_EQ(ranks[rank]->wrong(bucket, kIterations - 1), "");
    }
  }
}

TEST_P(ExecutorJobs, SumExactlyWithAllBucketsInFlightForAnyInterleaving) {
  expect_exact_for_any_interleaving(all_layouts(GetParam()), 0);
}

// Counts are about one per rank or less, primes, and large enough to be cut.
TEST_P(ExecutorJobs, SumAnyCountExactlyForAnyInterleaving) {
  const auto ranks = static_cast<std::size_t>(
      std::accumulate(GetParam().nodes.begin(), GetParam().nodes.end(), 0));
  std::vector<BucketLayout> layouts;
  for (const std::size_t count : std::initializer_list<std::size_t>{
           0, 1, ranks - 1, ranks, ranks + 1, 251, 16 * ranks, 16 * ranks + 1, 2003}) {
    for (Placement placement : {Placement::kInPlace, Placement::kStaged, Placement::kUser}) {
      const bool out_of_place = placement != Placement::kInPlace && layouts.size() % 2 == 1;
      layouts.push_back({.count = count,
                         .op = ReduceOp::kAverage,
                         .placement = placement,
                         .out_of_place = out_of_place});
    }
  }
  expect_exact_for_any_interleaving(layouts, 10);
}

void ExecutorJobs::expect_exact_with_a_thread_per_rank(
    const std::vector<BucketLayout>& layouts) const {
  InProcessHub hub(ProcessGrid::with_node_sizes(GetParam().nodes));
  std::atomic<int> done{0};
  test::run_ranks(hub.grid().world_size(), [&](const test::RankRun& run) {
    Rank rank(hub, run.rank());
    for (const BucketLayout& layout : layouts) rank.add(layout, hub.grid(), options());
    for (std::uint64_t iteration = 0; iteration < kIterations; ++iteration) {
      for (BucketId bucket = 0; bucket < layouts.size(); ++bucket) rank.start(bucket, iteration);
      std::size_t finished = 0;
      run.poll_until(
          [&] {
            const bool moved = rank.poll();
            finished += rank.executor().take_finished().size();
            return moved;
          },
          [&] { return finished == layouts.size(); });
      for (BucketId bucket = 0; bucket < layouts.size(); ++bucket) {
        const std::string wrong = rank.wrong(bucket, iteration);
        if (!wrong.empty()) throw std::runtime_error(wrong);
      }
    }
    // Shutting a transport down cancels messages that are still in flight to other ranks.
    ++done;
    run.poll_until([&] { return rank.transport().poll(); },
                   [&] { return done == run.world_size(); });
    rank.transport().shutdown(true);
  });
}

// Threads add only races, which depend on the kinds of steps.
class ThreadedJobs : public ExecutorJobs {};

TEST_P(ThreadedJobs, SumExactly) { expect_exact_with_a_thread_per_rank(all_layouts(GetParam())); }

INSTANTIATE_TEST_SUITE_P(Jobs, ExecutorJobs,
                         testing::Values(Job{{1}, "direct"}, Job{{4}, "direct"}, Job{{4}, "ring"},
                                         Job{{1}, "flat"}, Job{{2}, "flat"}, Job{{5}, "flat"},
                                         Job{{1, 1, 1}, "flat"}, Job{{2, 3}, "flat"},
                                         Job{{2}, "direct"}, Job{{3}, "direct"},
                                         Job{{4}, "hierarchical:direct,direct"},
                                         Job{{1, 1, 1, 1}, "direct"}, Job{{1, 1, 1, 1}, "ring"},
                                         Job{{1, 1, 1, 1}, "halving_doubling"},
                                         Job{{2, 2}, "hierarchical:direct,direct"},
                                         Job{{2, 2}, "hierarchical:direct,ring"},
                                         Job{{3, 1}, "hierarchical:direct,direct"},
                                         Job{{3, 2}, "hierarchical:direct,direct"}));
INSTANTIATE_TEST_SUITE_P(Jobs, ThreadedJobs,
                         testing::Values(Job{{4}, "direct"}, Job{{5}, "flat"}, Job{{2, 3}, "flat"},
                                         Job{{1, 1, 1, 1}, "ring"},
                                         Job{{1, 1, 1, 1}, "halving_doubling"},
                                         Job{{2, 2}, "hierarchical:direct,ring"},
                                         Job{{3, 2}, "hierarchical:direct,direct"}));

}  // namespace
}  // namespace kolo
