#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/comm/schedule/executor_rank.h"
#include "tests/support/allocation_counter.h"

namespace kolo {
namespace {

using test::all_layouts;
using test::Job;
using test::make_ranks;
using test::Rank;

// One node: no message is sent, so what is counted is the executor's alone.
class ExecutorMemory : public testing::TestWithParam<Job> {};
INSTANTIATE_TEST_SUITE_P(Jobs, ExecutorMemory,
                         testing::Values(Job{{2}, "direct"}, Job{{3}, "flat"}));

TEST_P(ExecutorMemory, IsNotAllocatedInSteadyState) {
  const Job job = GetParam();
  InProcessHub hub(ProcessGrid::with_node_sizes(job.nodes));
  const auto ranks = make_ranks(hub);
  const std::vector<BucketLayout> layouts = all_layouts(job);
  for (const auto& rank : ranks) {
    for (const BucketLayout& layout : layouts) {
      rank->add(layout, hub.grid(), {.algorithm = job.algorithm, .chunk_bytes = 256});
    }
  }
  std::vector<int> awaited;
  const auto iterate = [&](std::uint64_t iteration) {
    for (const auto& rank : ranks) {
      for (BucketId bucket = 0; bucket < layouts.size(); ++bucket) rank->start(bucket, iteration);
    }
    for (std::size_t finished = 0; finished < ranks.size() * layouts.size();) {
      for (const auto& rank : ranks) {
        rank->transport().poll();
        rank->executor().poll();
        awaited.clear();
        rank->executor().append_awaited_peers(awaited);
        finished += rank->executor().take_finished().size();
      }
    }
  };
  iterate(0);  // Warms up: buffers reach their size.
  iterate(1);
  const test::AllocationCounter allocations;
  iterate(2);
  iterate(3);
  EXPECT_EQ(allocations.calls(), 0u);
  for (const auto& rank : ranks) {
    for (BucketId bucket = 0; bucket < layouts.size(); ++bucket) {
      EXPECT_EQ(rank->wrong(bucket, 3), "");
    }
  }
}

/// Runs one iteration of all buckets of all ranks, in one thread and its helpers.
void run_iteration(const std::vector<std::unique_ptr<Rank>>& ranks, std::size_t buckets,
                   std::uint64_t iteration) {
  for (const auto& rank : ranks) {
    for (BucketId bucket = 0; bucket < buckets; ++bucket) rank->start(bucket, iteration);
  }
  for (std::size_t finished = 0; finished < ranks.size() * buckets;) {
    for (const auto& rank : ranks) {
      rank->transport().poll();
      rank->executor().poll();
      finished += rank->executor().take_finished().size();
    }
  }
}

/// Buckets whose kernels are cut.
std::vector<BucketLayout> large_layouts() {
  std::vector<BucketLayout> layouts;
  for (Placement placement : {Placement::kInPlace, Placement::kStaged, Placement::kUser}) {
    layouts.push_back({.count = 150'007, .placement = placement});
  }
  layouts.push_back({.count = 150'007, .placement = Placement::kUser, .out_of_place = true});
  return layouts;
}

TEST(Executor, GivesTheSameBytesWithHelpers) {
  const std::vector<BucketLayout> layouts = large_layouts();
  for (const Job& job : {Job{{3}, "direct"}, Job{{1, 1}, "ring"}, Job{{2, 1}, "flat"},
                         Job{{2, 2}, "hierarchical:direct,direct"}}) {
    std::vector<std::vector<std::byte>> alone;
    for (const int helpers : {0, 1, 3}) {
      SCOPED_TRACE(text(job) + " with " + std::to_string(helpers) + " helpers");
      InProcessHub hub(ProcessGrid::with_node_sizes(job.nodes),
                       {.arena_bytes = std::size_t{32} << 20});
      const auto ranks = make_ranks(hub, helpers);
      for (const auto& rank : ranks) {
        for (const BucketLayout& layout : layouts) {
          rank->add(layout, hub.grid(), {.algorithm = job.algorithm});
        }
      }
      run_iteration(ranks, layouts.size(), 0);
      for (BucketId bucket = 0; bucket < layouts.size(); ++bucket) {
        if (helpers == 0) alone.push_back(ranks[0]->result(bucket));
        for (const auto& rank : ranks) {
          // Not EXPECT_EQ, which would print megabytes.
          EXPECT_TRUE(rank->result(bucket) == alone[bucket]) << "bucket " << bucket;
        }
      }
    }
  }
}

TEST(Executor, AllocatesNothingWithHelpers) {
  InProcessHub hub(ProcessGrid::with_node_sizes({2}), {.arena_bytes = std::size_t{32} << 20});
  const auto ranks = make_ranks(hub, 2);
  const std::vector<BucketLayout> layouts = large_layouts();
  for (const auto& rank : ranks) {
    for (const BucketLayout& layout : layouts) {
      rank->add(layout, hub.grid(), {.algorithm = "direct"});
    }
  }
  run_iteration(ranks, layouts.size(), 0);
  const test::AllocationCounter allocations;
  run_iteration(ranks, layouts.size(), 1);
  EXPECT_EQ(allocations.calls(), 0u);
}

}  // namespace
}  // namespace kolo
