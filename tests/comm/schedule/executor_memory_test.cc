#include <gtest/gtest.h>

#include <cstring>

#include "tests/comm/schedule/executor_rank.h"
#include "tests/support/allocations.h"

namespace kolo {
namespace {

using test::all_layouts;
using test::Job;
using test::make_ranks;
using test::Rank;

/// Runs iterations of all buckets of all ranks, one after the other, in one thread with helpers.
class Iterations {
 public:
  /// `ranks` must outlive this object.
  Iterations(const std::vector<std::unique_ptr<Rank>>& ranks, std::size_t buckets)
      : ranks_(ranks), buckets_(buckets) {}

  void run() {
    for (const auto& rank : ranks_) {
      for (BucketId bucket = 0; bucket < buckets_; ++bucket) rank->start(bucket, next_);
    }
    ++next_;
    for (std::size_t finished = 0; finished < ranks_.size() * buckets_;) {
      for (const auto& rank : ranks_) {
        rank->poll();
        awaited_.clear();
        rank->executor().append_awaited_peers(awaited_);
        finished += rank->executor().take_finished().size();
      }
    }
  }

 private:
  const std::vector<std::unique_ptr<Rank>>& ranks_;
  const std::size_t buckets_;
  std::uint64_t next_ = 0;
  std::vector<int> awaited_;
};

// On one node no message is sent, so only allocations of the executor count.
class ExecutorMemory : public testing::TestWithParam<Job> {};
INSTANTIATE_TEST_SUITE_P(Jobs, ExecutorMemory,
                         testing::Values(Job{{2}, "direct"}, Job{{4}, "direct"}, Job{{3}, "flat"}));

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
  Iterations iterations(ranks, layouts.size());
  iterations.run();  // buffers grow to their final size
  iterations.run();
  const test::AllocationCounter allocations;
  iterations.run();
  iterations.run();
  EXPECT_EQ(allocations.calls(), 0u);
  for (const auto& rank : ranks) {
    for (BucketId bucket = 0; bucket < layouts.size(); ++bucket) {
      EXPECT_EQ(rank->wrong(bucket, 3), "");
    }
  }
}

/// Returns layouts of buckets that are large enough for kernels to be cut.
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
    for (const int helpers : {0, 3}) {
      SCOPED_TRACE(text(job) + " with " + std::to_string(helpers) + " helpers");
      InProcessHub hub(ProcessGrid::with_node_sizes(job.nodes),
                       {.arena_bytes = std::size_t{32} << 20});
      const auto ranks = make_ranks(hub, helpers);
      for (const auto& rank : ranks) {
        for (const BucketLayout& layout : layouts) {
          rank->add(layout, hub.grid(), {.algorithm = job.algorithm});
        }
      }
      Iterations(ranks, layouts.size()).run();
      for (BucketId bucket = 0; bucket < layouts.size(); ++bucket) {
        if (helpers == 0) alone.push_back(ranks[0]->result(bucket));
        for (const auto& rank : ranks) {
          const std::vector<std::byte> bytes = rank->result(bucket);
          ASSERT_EQ(bytes.size(), alone[bucket].size());
          // memcmp does not print megabytes on failure.
          EXPECT_EQ(std::memcmp(bytes.data(), alone[bucket].data(), bytes.size()), 0)
              << "bucket " << bucket;
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
  Iterations iterations(ranks, layouts.size());
  iterations.run();
  const test::AllocationCounter allocations;
  iterations.run();
  EXPECT_EQ(allocations.calls(), 0u);
}

}  // namespace
}  // namespace kolo
