#include "comm/schedule/executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>

#include "comm/base/error.h"
#include "comm/collective/compile.h"
#include "comm/collective/reduce_kernels.h"
#include "comm/transport/in_process_transport.h"
#include "tests/support/allocation_counter.h"
#include "tests/support/node_shapes.h"
#include "tests/support/rank_harness.h"

namespace kolo {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::size_t kArenaStep = 4096;

/// What `rank` contributes to element `index`: 1 or 2, so that every combination of four ranks is
/// exact in every dtype, products and averages too.
double contribution(int rank, std::size_t index, std::uint64_t iteration) {
  return static_cast<double>((static_cast<std::size_t>(rank) + index + iteration) % 2 + 1);
}

double combined(ReduceOp op, DType dtype, int ranks, std::size_t index, std::uint64_t iteration) {
  double result = contribution(0, index, iteration);
  for (int rank = 1; rank < ranks; ++rank) {
    const double next = contribution(rank, index, iteration);
    switch (op) {
      case ReduceOp::kSum:
      case ReduceOp::kAverage:
        result += next;
        break;
      case ReduceOp::kMin:
        result = std::min(result, next);
        break;
      case ReduceOp::kMax:
        result = std::max(result, next);
        break;
      case ReduceOp::kProd:
        result *= next;
        break;
    }
  }
  if (op == ReduceOp::kAverage) result /= ranks;
  return is_float(dtype) ? result : static_cast<double>(static_cast<int>(result));
}

/// The caller's tensor of a staged bucket.
class UserTensor final : public Packer {
 public:
  UserTensor(std::size_t count, DType dtype)
      : element_bytes_(size_of(dtype)), bytes_(count * element_bytes_) {}

  std::byte* data() { return bytes_.data(); }
  void pack(std::size_t offset, std::size_t count, void* bucket) override {
    std::memcpy(bucket, bytes_.data() + offset * element_bytes_, count * element_bytes_);
  }
  void unpack(std::size_t offset, std::size_t count, const void* bucket) override {
    std::memcpy(bytes_.data() + offset * element_bytes_, bucket, count * element_bytes_);
  }

 private:
  std::size_t element_bytes_;
  std::vector<std::byte> bytes_;
};

/// One rank of a job with buckets of all kinds.
class Rank {
 public:
  Rank(InProcessHub& hub, int rank)
      : ranks_(hub.grid().world_size()), transport_(hub.transport(rank)), executor_(*transport_) {}

  /// What is in flight refers to the executor's memory, so the transport ends first.
  ~Rank() { transport_->shutdown(false); }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  Executor& executor() { return executor_; }
  Transport& transport() { return *transport_; }

  void add(const BucketLayout& layout, const ProcessGrid& grid, const CompileOptions& options) {
    const auto bucket = static_cast<BucketId>(buckets_.size());
    Schedule schedule = compile_all_reduce(transport_->rank(), layout, grid, options);
    Binding binding{.name = "bucket " + std::to_string(bucket),
                    .bucket = bucket,
                    .first_flag = next_flag_,
                    .arena_offset = bucket * kArenaStep,
                    .scale = layout.op == ReduceOp::kAverage ? 1.0 / ranks_ : 1.0};
    next_flag_ += schedule.flag_count;
    std::byte* data = transport_->memory(transport_->rank()).data() + binding.arena_offset;
    if (layout.placement == Placement::kStaged) {
      auto tensor = std::make_shared<UserTensor>(layout.count, layout.dtype);
      data = tensor->data();
      binding.packer = std::move(tensor);
    }
    buckets_.push_back({layout, data});
    executor_.add(std::move(schedule), std::move(binding));
  }

  void start(BucketId bucket, std::uint64_t iteration) {
    const auto& [layout, data] = buckets_[bucket];
    values_.resize(layout.count);
    for (std::size_t i = 0; i < layout.count; ++i) {
      values_[i] = contribution(transport_->rank(), i, iteration);
    }
    convert(layout.dtype, data, DType::kFloat64, values_.data(), layout.count, 1.0);
    executor_.start(bucket, iteration);
  }

  /// Empty, or what is wrong with the result of an iteration.
  std::string wrong(BucketId bucket, std::uint64_t iteration) {
    const auto& [layout, data] = buckets_[bucket];
    values_.resize(layout.count);
    convert(DType::kFloat64, values_.data(), layout.dtype, data, layout.count, 1.0);
    for (std::size_t i = 0; i < layout.count; ++i) {
      const double expected = combined(layout.op, layout.dtype, ranks_, i, iteration);
      if (values_[i] == expected) continue;
      return "rank " + std::to_string(transport_->rank()) + " bucket " + std::to_string(bucket) +
             " (" + std::string(to_string(layout.dtype)) + " " + std::string(to_string(layout.op)) +
             ") iteration " + std::to_string(iteration) + " element " + std::to_string(i) + ": " +
             std::to_string(values_[i]) + " and not " + std::to_string(expected);
    }
    return {};
  }

 private:
  struct Bucket {
    BucketLayout layout;
    std::byte* data;
  };

  int ranks_;
  std::unique_ptr<Transport> transport_;
  Executor executor_;
  std::uint32_t next_flag_ = 0;
  std::vector<Bucket> buckets_;
  std::vector<double> values_;
};

std::vector<std::unique_ptr<Rank>> make_ranks(InProcessHub& hub) {
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int rank = 0; rank < hub.grid().world_size(); ++rank) {
    ranks.push_back(std::make_unique<Rank>(hub, rank));
  }
  return ranks;
}

struct Job {
  std::vector<int> nodes;
  std::string algorithm;
};

std::string text(const Job& job) { return test::shape_text(job.nodes) + " " + job.algorithm; }

/// All dtypes and operations, in place and staged in turn. 16-bit sums are left to algorithms that
/// round once.
std::vector<BucketLayout> all_layouts(const Job& job) {
  const bool rounds_once = job.algorithm.ends_with("direct");
  std::vector<BucketLayout> layouts;
  for (DType dtype : kAllDTypes) {
    for (ReduceOp op : kAllReduceOps) {
      const bool rounds = op != ReduceOp::kMin && op != ReduceOp::kMax;
      if (is_16bit_float(dtype) && rounds && !rounds_once) continue;
      layouts.push_back(
          {.count = 131 + layouts.size(),
           .dtype = dtype,
           .op = op,
           .placement = layouts.size() % 2 == 0 ? Placement::kInPlace : Placement::kStaged});
    }
  }
  return layouts;
}

class ExecutorJobs : public testing::TestWithParam<Job> {
 protected:
  static constexpr std::uint64_t kIterations = 3;

  CompileOptions options() const { return {.algorithm = GetParam().algorithm, .chunk_bytes = 256}; }
};

// Every bucket is restarted as soon as all ranks have finished it, while others are on their way.
TEST_P(ExecutorJobs, SumExactlyWithAllBucketsInFlightForAnyInterleaving) {
  const std::vector<BucketLayout> layouts = all_layouts(GetParam());
  for (std::uint64_t seed = 0; seed < 2; ++seed) {
    SCOPED_TRACE(text(GetParam()) + " seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    InProcessHub hub(ProcessGrid::with_node_sizes(GetParam().nodes));
    const auto ranks = make_ranks(hub);
    std::vector<std::pair<std::size_t, BucketId>> starts;  // (rank, bucket), not started yet
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      for (const BucketLayout& layout : layouts) {
        starts.emplace_back(rank, static_cast<BucketId>(starts.size() % layouts.size()));
        ranks[rank]->add(layout, hub.grid(), options());
      }
    }
    std::vector<std::size_t> finished_ranks(layouts.size());
    std::vector<std::uint64_t> iteration(layouts.size());
    std::size_t finished_buckets = 0;
    for (std::size_t steps = 0; finished_buckets < layouts.size(); ++steps) {
      ASSERT_LT(steps, 1'000'000u);
      if (!starts.empty() && random() % 2 == 0) {
        std::swap(starts[random() % starts.size()], starts.back());
        const auto [rank, bucket] = starts.back();
        starts.pop_back();
        ranks[rank]->start(bucket, iteration[bucket]);
      }
      Rank& rank = *ranks[random() % ranks.size()];
      rank.transport().poll();
      rank.executor().poll();
      for (BucketId bucket : rank.executor().take_finished()) {
        ASSERT_EQ(rank.wrong(bucket, iteration[bucket]), "");
        if (++finished_ranks[bucket] < ranks.size()) continue;
        for (const auto& other : ranks) ASSERT_EQ(other->wrong(bucket, iteration[bucket]), "");
        finished_ranks[bucket] = 0;
        if (++iteration[bucket] == kIterations) {
          ++finished_buckets;
          continue;
        }
        for (std::size_t r = 0; r < ranks.size(); ++r) starts.emplace_back(r, bucket);
      }
    }
    for (const auto& rank : ranks) {
      EXPECT_FALSE(rank->executor().busy());
      EXPECT_EQ(rank->transport().failure(), std::nullopt);
    }
  }
}

TEST_P(ExecutorJobs, SumExactlyWithAThreadPerRank) {
  const std::vector<BucketLayout> layouts = all_layouts(GetParam());
  InProcessHub hub(ProcessGrid::with_node_sizes(GetParam().nodes));
  std::atomic<std::uint64_t> arrived{0};  // ranks, over all iterations
  test::run_ranks(hub.grid().world_size(), [&](const test::RankRun& run) {
    Rank rank(hub, run.rank());
    for (const BucketLayout& layout : layouts) rank.add(layout, hub.grid(), options());
    const auto meet = [&](std::uint64_t meeting) {
      ++arrived;
      const std::uint64_t all = (meeting + 1) * static_cast<std::uint64_t>(run.world_size());
      run.poll_until([&] { return rank.transport().poll(); }, [&] { return arrived >= all; });
    };
    for (std::uint64_t iteration = 0; iteration < kIterations; ++iteration) {
      for (BucketId bucket = 0; bucket < layouts.size(); ++bucket) rank.start(bucket, iteration);
      std::size_t finished = 0;
      run.poll_until(
          [&] {
            bool moved = rank.transport().poll();
            moved |= rank.executor().poll();
            finished += rank.executor().take_finished().size();
            return moved;
          },
          [&] { return finished == layouts.size(); });
      meet(iteration);
      for (BucketId bucket = 0; bucket < layouts.size(); ++bucket) {
        const std::string wrong = rank.wrong(bucket, iteration);
        if (!wrong.empty()) throw std::runtime_error(wrong);
      }
    }
    rank.transport().shutdown(true);
  });
}

INSTANTIATE_TEST_SUITE_P(Jobs, ExecutorJobs,
                         testing::Values(Job{{1}, "direct"}, Job{{4}, "direct"}, Job{{4}, "ring"},
                                         Job{{1, 1, 1, 1}, "direct"}, Job{{1, 1, 1, 1}, "ring"},
                                         Job{{1, 1, 1, 1}, "halving_doubling"}, Job{{1, 1}, "tree"},
                                         Job{{2, 2}, "hierarchical:direct,direct"},
                                         Job{{2, 2}, "hierarchical:direct,ring"},
                                         Job{{3, 1}, "hierarchical:direct,direct"}));

// One node and `direct`: no message is sent, so what is counted is the executor's alone.
TEST(Executor, AllocatesNothingInSteadyState) {
  const Job job{{2}, "direct"};
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

TEST(Executor, SaysWhatAndForWhomItWaits) {
  InProcessHub hub(ProcessGrid::with_node_sizes({1, 1}));
  Rank rank(hub, 0);
  EXPECT_EQ(rank.executor().describe_wait(), "nothing");
  rank.add({.count = 100}, hub.grid(), {.algorithm = "ring"});
  rank.start(0, 7);
  for (int i = 0; i < 10; ++i) {
    rank.transport().poll();
    rank.executor().poll();
  }
  EXPECT_TRUE(rank.executor().busy());
  EXPECT_THAT(rank.executor().describe_wait(), AllOf(HasSubstr("bucket 'bucket 0' iteration 7:"),
                                                     HasSubstr("recv"), HasSubstr("from rank 1")));
  std::vector<int> peers;
  rank.executor().append_awaited_peers(peers);
  EXPECT_THAT(peers, AllOf(Contains(1), Each(1)));
}

// After the transport is shut down nothing of a run is touched any more, wherever it was cut.
TEST(Executor, CancelForgetsWhatIsInFlight) {
  for (const Job& job : {Job{{2, 1}, "hierarchical:direct,direct"}, Job{{1, 1, 1}, "ring"}}) {
    for (int steps = 0; steps < 12; ++steps) {
      SCOPED_TRACE(text(job) + " after " + std::to_string(steps) + " steps");
      InProcessHub hub(ProcessGrid::with_node_sizes(job.nodes));
      auto ranks = make_ranks(hub);
      for (const auto& rank : ranks) {
        for (BucketId bucket = 0; bucket < 3; ++bucket) {
          rank->add({.count = 200}, hub.grid(), {.algorithm = job.algorithm, .chunk_bytes = 256});
          rank->start(bucket, 0);
        }
      }
      for (int step = 0; step < steps; ++step) {
        for (const auto& rank : ranks) {
          rank->transport().poll();
          rank->executor().poll();
        }
      }
      Rank& cut = *ranks[0];
      cut.transport().shutdown(false);
      cut.executor().cancel();
      EXPECT_FALSE(cut.executor().busy());
      EXPECT_THAT(cut.executor().take_finished(), IsEmpty());
      EXPECT_FALSE(cut.executor().poll());
      for (BucketId bucket = 0; bucket < 3; ++bucket) cut.executor().remove(bucket);
      ranks.erase(ranks.begin());
      for (const auto& rank : ranks) {
        for (int step = 0; step < 200; ++step) {
          rank->transport().poll();
          rank->executor().poll();
        }
        rank->transport().shutdown(false);
        rank->executor().cancel();
      }
    }
  }
}

TEST(Executor, ABucketIsNeitherStartedTwiceNorRemovedWhileItRuns) {
  InProcessHub hub(ProcessGrid::with_node_sizes({1, 1}));
  Rank rank(hub, 0);
  rank.add({.count = 100}, hub.grid(), {.algorithm = "ring"});
  rank.start(0, 0);
  EXPECT_THROW(rank.executor().start(0, 1), KoloError);
  EXPECT_THROW(rank.executor().remove(0), KoloError);
  EXPECT_TRUE(rank.executor().busy());
}

TEST(Executor, AnEmptyBucketFinishesAtOnce) {
  InProcessHub hub(ProcessGrid::with_node_sizes({1, 1}));
  Rank rank(hub, 0);
  rank.add({.count = 0}, hub.grid(), {.algorithm = "ring"});
  for (std::uint64_t iteration = 0; iteration < 3; ++iteration) {
    rank.start(0, iteration);
    EXPECT_TRUE(rank.executor().poll());
    EXPECT_THAT(rank.executor().take_finished(), ElementsAre(0u));
  }
}

TEST(Executor, RefusesABucketThatTheArenaCannotHold) {
  InProcessHub hub(ProcessGrid::with_node_sizes({1}));
  Rank rank(hub, 0);
  try {
    rank.add({.count = kInProcessLimits.arena_bytes}, hub.grid(), {});
    ADD_FAILURE();
  } catch (const KoloError& e) {
    EXPECT_EQ(e.error().code, ErrorCode::kResources);
  }
}

}  // namespace
}  // namespace kolo
