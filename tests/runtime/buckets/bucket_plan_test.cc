#include "runtime/buckets/bucket_plan.h"

#include <gmock/gmock.h>

namespace kolo {
namespace {

using testing::HasSubstr;

class BucketPlanTest : public testing::Test {
 protected:
  PlanInputs inputs(int rank = 0) const {
    return {.rank = rank, .grid = grid_, .options = options_, .costs = costs_};
  }

  /// Requests a ring in which rank 1 lacks the dependencies of its first sum.
  BucketRequest broken_request() const {
    BucketRequest request = request_bucket(
        "weights", CollectiveSpec::all_reduce(grid_.world_size()), layout_, inputs());
    request.compile = [compile = request.compile](int rank) {
      Schedule schedule = compile(rank);
      const auto sum = std::ranges::find(schedule.steps, StepKind::kReduce, &Step::kind);
      if (rank == 1) sum->after.clear();
      return schedule;
    };
    return request;
  }

  ProcessGrid grid_ = ProcessGrid::with_node_sizes({1, 1, 1});
  Options options_{.algorithm = "ring", .verify_schedules = true};
  LinkCosts costs_;
  BucketLayout layout_{.count = 4096};
};

TEST_F(BucketPlanTest, HasTheScheduleOfTheRankAndTheScaleOfTheOperation) {
  layout_.op = ReduceOp::kAverage;
  const BucketPlan plan = plan_bucket(
      request_bucket("weights", CollectiveSpec::all_reduce(grid_.world_size()), layout_, inputs(2)),
      inputs(2));
  EXPECT_EQ(plan.schedule.rank, 2);
  EXPECT_EQ(plan.schedule.algorithm, "ring");
  EXPECT_EQ(plan.binding.name, "weights");
  EXPECT_DOUBLE_EQ(plan.binding.scale, 1.0 / 3);
}

TEST_F(BucketPlanTest, ExposesContributionsPastTheCacheWhereThatIsFaster) {
  const CollectiveSpec spec = CollectiveSpec::reduce_scatter(std::vector<std::size_t>{10, 20, 30});
  const BucketLayout layout{.count = spec.count(), .placement = Placement::kUser};
  const auto stores = [&] {
    return plan_bucket(request_bucket("parts", spec, layout, inputs()), inputs())
        .binding.exposure_stores;
  };
  costs_.memory.packed_bytes_per_us = 20'000;
  costs_.memory.streamed_bytes_per_us = 10'000;
  EXPECT_EQ(stores(), Stores::kCached);
  costs_.memory.packed_bytes_per_us = 4'000;
  EXPECT_EQ(stores(), Stores::kStreaming);
}

// Results bypass a cache of less than two thirds of the bytes that ranks contribute and receive.
TEST_F(BucketPlanTest, ResultsGoPastACacheThatIsFarTooSmall) {
  grid_ = ProcessGrid::with_node_sizes({3});
  const std::vector<std::size_t> counts = {1000, 1000, 1000};
  const auto cache_is = [&](std::size_t enough, const CollectiveSpec& spec, bool out_of_place) {
    const BucketLayout layout{
        .count = 3000, .placement = Placement::kUser, .out_of_place = out_of_place};
    PlanInputs with_cache = inputs();
    const auto stores = [&](std::size_t cache_bytes) {
      with_cache.cache_bytes = cache_bytes;
      return plan_bucket(request_bucket("parts", spec, layout, with_cache), with_cache)
          .binding.unpack_stores;
    };
    return stores(enough - 1) == Stores::kStreaming && stores(enough) == Stores::kCached;
  };
  EXPECT_TRUE(cache_is(16'000, CollectiveSpec::scatter(1, counts), true));
  EXPECT_TRUE(cache_is(13'334, CollectiveSpec::scatter(1, counts), false));
  EXPECT_TRUE(cache_is(24'000, CollectiveSpec::all_gather(counts), false));
  EXPECT_TRUE(cache_is(32'000, CollectiveSpec::all_gather(counts), true));
  EXPECT_TRUE(cache_is(32'000, CollectiveSpec::reduce(0, 3, 3000), true));
}

class TunedPlanTest : public BucketPlanTest {
 protected:
  TunedPlanTest() { options_ = {}; }

  /// Requests a sum of `bytes` bytes.
  BucketRequest request(std::size_t bytes, BucketLayout layout = {}) const {
    layout.count = bytes / size_of(layout.dtype);
    PlanInputs with_tuning = inputs();
    with_tuning.tuning = &tuning_;
    return request_bucket("weights", CollectiveSpec::all_reduce(grid_.world_size()), layout,
                          with_tuning);
  }
  bool is_tuned(std::size_t bytes, const BucketLayout& layout = {}) const {
    return request(bytes, layout).reason.starts_with("halving_doubling: tuned; ");
  }

  static constexpr std::size_t kBytes = std::size_t{1} << 20;
  Tuning tuning_ = {{.collective = "all-reduce",
                     .in_place = true,
                     .bytes = kBytes,
                     .algorithm = "halving_doubling",
                     .chunk_bytes = kBytes / 16}};
};

TEST_F(TunedPlanTest, ATunedAlgorithmServesItsClassOfSizes) {
  ASSERT_FALSE(inputs().tuning);
  EXPECT_EQ(request(kBytes).compile(0).algorithm, "halving_doubling");
  EXPECT_TRUE(is_tuned(kBytes));
  EXPECT_TRUE(is_tuned(kBytes / 2));
  EXPECT_TRUE(is_tuned(2 * kBytes - 4));
  EXPECT_FALSE(is_tuned(kBytes / 2 - 4));
  EXPECT_FALSE(is_tuned(2 * kBytes));
}

TEST_F(TunedPlanTest, WhatWasNotMeasuredIsNotTuned) {
  EXPECT_FALSE(is_tuned(kBytes, {.placement = Placement::kUser}));
  EXPECT_FALSE(is_tuned(kBytes, {.placement = Placement::kStaged}));
  EXPECT_FALSE(is_tuned(kBytes, {.dtype = DType::kBFloat16}));
  EXPECT_TRUE(is_tuned(kBytes, {.dtype = DType::kInt64}));
  tuning_.front().collective = "broadcast";
  EXPECT_FALSE(is_tuned(kBytes));
  tuning_.front() = {.in_place = true, .bytes = kBytes, .fusion_bytes = kBytes};
  EXPECT_FALSE(is_tuned(kBytes));
}

// "auto" never takes "native" in host memory, nor an algorithm that it does not know.
TEST_F(TunedPlanTest, WhatAutoDoesNotConsiderIsIgnored) {
  const std::string untuned = BucketPlanTest::inputs().options.algorithm;
  EXPECT_EQ(untuned, "auto");
  for (const char* name : {"native", "hierarchical", "pairwise", "halving_doubling;ring"}) {
    tuning_.front().algorithm = name;
    EXPECT_THAT(request(kBytes).reason, testing::Not(HasSubstr("tuned"))) << name;
  }
}

TEST_F(TunedPlanTest, OptionsCountMore) {
  const auto chunks = [&] { return request(kBytes).compile(0).steps.size(); };
  const std::size_t tuned = chunks();
  options_.chunk_bytes = kBytes;
  EXPECT_TRUE(is_tuned(kBytes));
  EXPECT_LT(chunks(), tuned);
  options_.algorithm = "ring";
  EXPECT_EQ(request(kBytes).reason, "ring: asked for");
  options_ = {.algorithm = "all-reduce:auto;ring"};
  EXPECT_TRUE(is_tuned(kBytes));
}

TEST_F(TunedPlanTest, ATunedBucketSizeServesGradientsOfItsClass) {
  tuning_ = {{.in_place = true, .bytes = kBytes, .fusion_bytes = 12'345}};
  CompileOptions options{.tuning = &tuning_};
  const auto bucket = [&](std::size_t bytes, MemoryKind memory,
                          Placement placement = Placement::kInPlace) {
    return cheapest_bucket_bytes(bytes, memory, grid_, options, placement);
  };
  EXPECT_EQ(bucket(kBytes, MemoryKind::kHost), 12'345u);
  for (const Placement other : {Placement::kUser, Placement::kStaged}) {
    EXPECT_NE(bucket(kBytes, MemoryKind::kHost, other), 12'345u);
  }
  EXPECT_NE(bucket(2 * kBytes, MemoryKind::kHost), 12'345u);
  // A tuned algorithm alone does not change the size of buckets.
  tuning_ = {{.collective = "all-reduce", .in_place = true, .bytes = 65536, .algorithm = "direct"}};
  const std::size_t tuned = bucket(64 * kBytes, MemoryKind::kHost);
  options.tuning = nullptr;
  EXPECT_EQ(tuned, bucket(64 * kBytes, MemoryKind::kHost));
}

// A ring would refuse to sum these elements.
TEST_F(BucketPlanTest, AGatherOf16BitNumbersTakesNoAlgorithm) {
  const CollectiveSpec spec = CollectiveSpec::all_gather(std::vector<std::size_t>{10, 20, 30});
  const BucketLayout layout{
      .count = spec.count(), .dtype = DType::kBFloat16, .placement = Placement::kUser};
  EXPECT_NO_THROW(plan_bucket(request_bucket("parts", spec, layout, inputs()), inputs()));
}

TEST_F(BucketPlanTest, ABroadcastOf16BitNumbersTakesNoAlgorithmOfAllReduces) {
  const BucketLayout layout{
      .count = 4096, .dtype = DType::kBFloat16, .placement = Placement::kUser};
  const CollectiveSpec spec = CollectiveSpec::broadcast(1, 3, layout.count);
  EXPECT_NO_THROW(plan_bucket(request_bucket("weights", spec, layout, inputs()), inputs()));
}

TEST_F(BucketPlanTest, GoodSchedulesAreProved) {
  for (const char* algorithm : {"auto", "ring", "direct", "halving_doubling", "flat"}) {
    options_.algorithm = algorithm;
    EXPECT_NO_THROW(
        plan_bucket(request_bucket("weights", CollectiveSpec::all_reduce(grid_.world_size()),
                                   layout_, inputs()),
                    inputs()));
  }
  for (const std::size_t count : {std::size_t{0}, layout_.count}) {
    const BucketLayout layout{.count = count, .placement = Placement::kUser};
    const CollectiveSpec spec = CollectiveSpec::broadcast(1, 3, count);
    EXPECT_NO_THROW(plan_bucket(request_bucket("weights", spec, layout, inputs()), inputs()));
  }
}

TEST_F(BucketPlanTest, AStepThatIsWrongIsNamedOnEveryRank) {
  std::string first;
  for (int rank = 0; rank < grid_.world_size(); ++rank) {
    try {
      plan_bucket(broken_request(), inputs(rank));
      ADD_FAILURE() << "rank " << rank;
    } catch (const KoloError& error) {
      EXPECT_EQ(error.error().code, ErrorCode::kInternal);
      const std::string text = error.error().to_string();
      for (const char* part : {"'weights'", "ring", "rank 1 step", "(reduce)"}) {
        EXPECT_THAT(text, HasSubstr(part));
      }
      if (rank == 0) first = text;
      EXPECT_EQ(text, first);
    }
  }
}

TEST_F(BucketPlanTest, WithoutTheOptionNothingIsProved) {
  options_.verify_schedules = false;
  EXPECT_NO_THROW(plan_bucket(broken_request(), inputs(1)));
}

/// Returns links between and inside nodes with many rates, as measured on idle and loaded machines.
std::vector<LinkCosts> all_costs() {
  std::vector<LinkCosts> result;
  for (const char* text :
       {"", "network_bytes_per_us=60", "network_latency_us=2,network_bytes_per_us=24000",
        "network_latency_us=500", "memory_bytes_per_us=500,memory_latency_us=100"}) {
    result.push_back(parse_link_costs(text));
  }
  return result;
}

TEST_F(BucketPlanTest, AReproducibleAlgorithmFollowsFromTheShapeOfTheJobAlone) {
  const auto algorithms = [&](const std::vector<int>& nodes, bool reproducible) {
    grid_ = ProcessGrid::with_node_sizes(nodes);
    options_ = {.reproducible = reproducible};
    std::set<std::string> found;
    for (const LinkCosts& costs : all_costs()) {
      costs_ = costs;
      for (std::size_t count = 16; count <= 1 << 20; count *= 16) {
        const BucketLayout layout{.count = count, .placement = Placement::kUser};
        const auto request =
            request_bucket("sum", CollectiveSpec::all_reduce(grid_.world_size()), layout, inputs());
        found.insert(plan_bucket(request, inputs()).schedule.algorithm);
      }
    }
    return found;
  };
  using testing::ElementsAre;
  EXPECT_THAT(algorithms({1, 1, 1, 1}, true), ElementsAre("direct"));
  EXPECT_THAT(algorithms({2, 2}, true), ElementsAre("hierarchical:direct,direct"));
  EXPECT_THAT(algorithms({3, 1, 2}, true), ElementsAre("hierarchical:direct,direct"));
  EXPECT_GT(algorithms({1, 1, 1, 1}, false).size(), 1u) << "these costs decide otherwise";
}

TEST_F(BucketPlanTest, AReproducibleJobTakesTheAlgorithmThatItNames) {
  for (const char* named : {"ring", "hierarchical:direct,ring"}) {
    options_ = {.algorithm = named, .reproducible = true};
    EXPECT_EQ(requested_algorithm(options_, grid_).names_for(CollectiveKind::kAllReduce).front(),
              named);
  }
  options_ = {.reproducible = true};
  EXPECT_TRUE(requested_algorithm(options_, ProcessGrid::with_node_sizes({4}))
                  .names_for(CollectiveKind::kAllReduce)
                  .empty());
}

TEST_F(BucketPlanTest, DeviceMemoryNeedsADevice) {
  layout_.memory = MemoryKind::kDevice;
  EXPECT_THROW(
      request_bucket("weights", CollectiveSpec::all_reduce(grid_.world_size()), layout_, inputs()),
      UsageError);
}

}  // namespace
}  // namespace kolo
