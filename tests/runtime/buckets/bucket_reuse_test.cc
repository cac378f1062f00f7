// Buckets are added and removed. A bucket that reuses old ranges is never mistaken for the old one.

#include <gmock/gmock.h>

#include <random>
#include <thread>

#include "runtime/buckets/bucket_runner.h"
#include "tests/support/engine_job.h"

namespace kolo {
namespace {

using test::EngineJob;
using test::error_of;

/// Number of floats that fit into a rank's arena.
constexpr std::size_t kInArena = EngineJob::kLimits.arena_bytes / sizeof(float);

/// Sums `count` elements on all ranks under this name. Returns the first error, or an empty string.
std::string sum(EngineJob& job, const std::string& name, std::size_t count, float value) {
  const auto world = static_cast<std::size_t>(job.world_size());
  std::vector<std::vector<float>> data(world);
  std::vector<std::shared_ptr<Operation>> operations;
  for (std::size_t rank = 0; rank < world; ++rank) {
    data[rank].assign(count, value + static_cast<float>(rank));
    operations.push_back(job.submit(static_cast<int>(rank), test::all_reduce(name, data[rank])));
  }
  job.finish(operations);
  float expected = 0;
  for (std::size_t rank = 0; rank < world; ++rank) expected += value + static_cast<float>(rank);
  for (std::size_t rank = 0; rank < world; ++rank) {
    if (const std::string error = error_of(*operations[rank]); !error.empty()) return error;
    if (std::ranges::any_of(data[rank], [&](float each) { return each != expected; })) {
      return "wrong sum on rank " + std::to_string(rank);
    }
  }
  return {};
}

class BucketReuse : public testing::TestWithParam<std::vector<int>> {};

// The test uses more buckets than there are numbers, and more flags and arena than exist. Small
// buckets that start immediately alternate with empty buckets that only agree.
TEST_P(BucketReuse, AChangingShapeNeverRunsOut) {
  EngineJob job(ProcessGrid::with_node_sizes(GetParam()), {.chunk_bytes = 1024}, 11);
  std::mt19937_64 random(11);
  for (std::size_t use = 0; use < kMaxBuckets + 500; ++use) {
    const std::size_t count = use % 3 == 0 ? 0 : 1 + random() % 300;
    const auto name = use % 2 == 0 ? "even" : "odd";
    ASSERT_EQ(sum(job, name, count, static_cast<float>(use % 100)), "")
        << "use " << use << " of " << count << " elements";
  }
}

// Every name is new. Some old names are used again, also during votes on them.
TEST_P(BucketReuse, NewNamesNeverRunOut) {
  EngineJob job(ProcessGrid::with_node_sizes(GetParam()), {}, 12);
  std::mt19937_64 random(12);
  for (std::size_t use = 0; use < 1500; ++use) {
    const std::size_t age = random() % 3 == 0 ? random() % 400 : 0;
    const std::string name = "tensor " + std::to_string(use - std::min(age, use));
    ASSERT_EQ(sum(job, name, 20, static_cast<float>(use % 100)), "") << "use " << use;
  }
}

// Stages of one call use several new names at the same time.
TEST_P(BucketReuse, NewNamesNeverRunOutWhereSeveralComeAtOnce) {
  EngineJob job(ProcessGrid::with_node_sizes(GetParam()), {}, 14);
  const auto world = static_cast<std::size_t>(job.world_size());
  for (int burst = 0; burst < 100; ++burst) {
    std::vector<std::vector<float>> data;
    data.reserve(8 * world);
    std::vector<std::shared_ptr<Operation>> operations;
    for (int rank = 0; rank < job.world_size(); ++rank) {
      for (int each = 0; each < 8; ++each) {
        data.emplace_back(20, static_cast<float>(rank + 1));
        operations.push_back(job.submit(
            rank, test::all_reduce("tensor " + std::to_string(8 * burst + each), data.back())));
      }
    }
    job.finish(operations);
    for (const auto& operation : operations) ASSERT_EQ(error_of(*operation), "") << burst;
    const auto expected = static_cast<float>(world * (world + 1) / 2);
    for (const auto& values : data) ASSERT_THAT(values, testing::Each(expected));
  }
}

// Ranks use the same names at different speeds, so votes find names in use on some ranks.
TEST_P(BucketReuse, NewNamesNeverRunOutWhileRanksAreApart) {
  for (std::uint64_t seed = 0; seed < 1; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    EngineJob job(ProcessGrid::with_node_sizes(GetParam()), {}, seed);
    const auto world = static_cast<std::size_t>(job.world_size());
    std::mt19937_64 random(seed);
    constexpr std::size_t kUses = 900;
    std::vector<std::string> names;
    for (std::size_t use = 0; use < kUses; ++use) {
      const std::size_t age = random() % 2 == 0 ? random() % 300 : 0;
      names.push_back("tensor " + std::to_string(use - std::min(age, use)));
    }
    std::vector<std::vector<std::vector<float>>> data(world);
    for (auto& mine : data) {
      // A name that is used again may have another shape.
      for (std::size_t use = 0; use < kUses; ++use) mine.emplace_back(10 + use % 3, 1.0F);
    }
    std::vector<std::shared_ptr<Operation>> operations;
    std::vector<std::size_t> next(world, 0);
    while (std::ranges::any_of(next, [&](std::size_t use) { return use < kUses; })) {
      const std::size_t rank = random() % world;
      // Operations in flight need space at the same time, so their number is limited.
      if (next[rank] > *std::ranges::min_element(next) + 40) continue;
      for (std::size_t burst = random() % 8; burst > 0 && next[rank] < kUses; --burst) {
        const std::size_t use = next[rank]++;
        operations.push_back(
            job.submit(static_cast<int>(rank), test::all_reduce(names[use], data[rank][use])));
      }
      job.poll(random() % 20);
    }
    job.finish(operations);
    for (const auto& operation : operations) ASSERT_EQ(error_of(*operation), "");
    for (const auto& mine : data) {
      for (const auto& values : mine) {
        ASSERT_THAT(values, testing::Each(static_cast<float>(world)));
      }
    }
  }
}

// Some ranks have begun the rejected iteration, others have not.
TEST_P(BucketReuse, WhatARejectedOperationHadIsUsedAgain) {
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    EngineJob job(ProcessGrid::with_node_sizes(GetParam()), {.chunk_bytes = 64 << 10}, seed);
    // The next operation fits only if this one returns its space.
    constexpr std::size_t kCount = kInArena / 2;
    for (int round = 0; round < 3; ++round) {
      ASSERT_EQ(sum(job, "x", round % 2 == 0 ? 10 : 0, 1.0F), "");
      const int odd_one = static_cast<int>(seed) % job.world_size();
      std::vector<std::vector<float>> data(static_cast<std::size_t>(job.world_size()),
                                           std::vector<float>(round % 2 == 0 ? 10 : 0, 1.0F));
      std::vector<std::shared_ptr<Operation>> operations;
      std::vector<std::thread> waiting;
      for (int rank = 0; rank < job.world_size(); ++rank) {
        operations.push_back(job.submit(
            rank,
            test::all_reduce(rank == odd_one ? "y" : "x", data[static_cast<std::size_t>(rank)])));
        waiting.emplace_back([ticket = operations.back()->ticket] {
          try {
            ticket->wait(std::chrono::milliseconds(0));
          } catch (const KoloError&) {
          }
        });
      }
      for (const auto& operation : operations) {
        while (operation->ticket->waiters() == 0 && !operation->ticket->done())
          std::this_thread::yield();
      }
      job.finish(operations, std::chrono::milliseconds(10));
      for (std::thread& thread : waiting) thread.join();
      for (const auto& operation : operations) {
        EXPECT_THAT(error_of(*operation), testing::HasSubstr("wait for different tensors"));
      }
      for (int use = 0; use < 3; ++use) {
        ASSERT_EQ(sum(job, "x", 10, static_cast<float>(use)), "");
        ASSERT_EQ(sum(job, "x", kCount, static_cast<float>(use)), "");
      }
    }
    EXPECT_EQ(job.close(), "") << "what others had sent of 'x' is no stray";
  }
}

// A much used operation's bucket number is reused for a gradient, which some ranks do not have when
// all close. Frames of the gradient are no strays from its first iteration on, although iterations
// in tags wrap around.
TEST(BucketReuseAtTheEnd, WhatIsGivenUpOfANewBucketBeginsAfterTheOldOne) {
  EngineJob job(ProcessGrid::with_node_sizes({2, 1}), {}, 13);
  for (int use = 0; use < 600; ++use) ASSERT_EQ(sum(job, "old", 20, 1.0F), "");
  // starts the vote on the oldest name
  ASSERT_EQ(sum(job, "most of the arena", kInArena / 5 * 4, 1.0F), "");
  job.poll(1000);
  const auto sets = job.register_sets({{.name = "g", .shape = {30}}});
  ASSERT_EQ(sets[0]->buckets(), std::vector<BucketId>{0}) << "the number of 'old'";
  for (int rank = 0; rank + 1 < job.world_size(); ++rank) {
    test::mark(job.engine(rank), *sets[static_cast<std::size_t>(rank)], 0);
  }
  job.poll(200);
  EXPECT_EQ(job.close(), "");
}

// Planning fails on all ranks. The name stays usable.
TEST_P(BucketReuse, ASignatureThatCannotBePlannedHarmsNoOther) {
  EngineJob job(ProcessGrid::with_node_sizes(GetParam()), {.algorithm = "ring"}, 3);
  ASSERT_EQ(sum(job, "x", 50, 1.0F), "");
  std::vector<std::vector<std::uint16_t>> halves(static_cast<std::size_t>(job.world_size()),
                                                 std::vector<std::uint16_t>(50));
  std::vector<std::shared_ptr<Operation>> operations;
  for (int rank = 0; rank < job.world_size(); ++rank) {
    auto& mine = halves[static_cast<std::size_t>(rank)];
    operations.push_back(
        job.submit(rank, {.kind = OperationKind::kAllReduce,
                          .name = "x",
                          .dtype = DType::kBFloat16,
                          .tensors = test::in_place({mine.data(), 50, DType::kBFloat16})}));
  }
  job.finish(operations);
  for (const auto& operation : operations)
    EXPECT_THAT(error_of(*operation), testing::HasSubstr("ring"));
  EXPECT_EQ(sum(job, "x", 50, 2.0F), "");
}

INSTANTIATE_TEST_SUITE_P(Shapes, BucketReuse,
                         testing::Values(std::vector<int>{2}, std::vector<int>{2, 1}));

// All ranks remove a bucket at one decision. Rejections of its iterations may follow.
TEST(BucketRunner, LeavesRemovedBucketsAlone) {
  InProcessHub hub(ProcessGrid::with_node_sizes({1}));
  const std::unique_ptr<Transport> transport = hub.transport(0);
  ManualClock clock;
  Coordinator coordinator(*transport, hub.grid(), clock, {});
  Executor executor(*transport);
  BucketTable buckets(executor, hub.grid(), kInProcessLimits, coordinator.acts());
  Activity activity;
  BucketRunner runner(coordinator, executor, buckets, activity);
  const Options options{};
  const LinkCosts costs{};
  const PlanInputs inputs{.rank = 0, .grid = hub.grid(), .options = options, .costs = costs};
  const BucketRequest request =
      request_bucket("x", CollectiveSpec::all_reduce(1), {.count = 4}, inputs);
  GradientSetState owner("model", {}, {});
  const BucketId id = buckets.add(plan_bucket(request, inputs), owner, 0, "'x'");
  buckets.remove(id);
  runner.reject({bucket_hash(id), 0}, {.code = ErrorCode::kMismatch, .what = "it differs"});
  runner.reject({bucket_hash(id + 1), 0}, {.code = ErrorCode::kMismatch, .what = "it differs"});
  EXPECT_FALSE(coordinator.failure().has_value());
  EXPECT_FALSE(buckets.has_rejected());
}

}  // namespace
}  // namespace kolo
