#include "benchmarks/collective/collective_bench.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <numeric>
#include <utility>

#include "benchmarks/collective/algorithm_choice.h"
#include "benchmarks/collective/caller_memory.h"
#include "benchmarks/peers/peers.h"
#include "tests/benchmarks/fake_system.h"
#include "tests/support/device/host_device.h"
#include "tests/support/runtime_job.h"

namespace kolo::bench {
namespace {

Runtime one_rank() { return Runtime::from_environment({}); }

/// Returns a call whose sum has a wrong element after `good` calls.
FakeCall wrong_after(int good) {
  return [good](auto&, auto& sum) mutable {
    if (good-- <= 0) sum.back() ^= std::byte{1};
  };
}

std::unique_ptr<FakeSystem> faulty(std::vector<int> good_calls) {
  std::vector<std::pair<std::string, FakeCall>> calls;
  for (const int good : good_calls) calls.emplace_back("faulty", wrong_after(good));
  return std::make_unique<FakeSystem>(std::move(calls));
}

std::vector<CollectiveRow> measure(Runtime& runtime, std::unique_ptr<CollectiveSystem> system,
                                   const CollectiveOptions& options) {
  std::vector<std::unique_ptr<CollectiveSystem>> systems;
  systems.push_back(std::move(system));
  return measure_collective(runtime, systems, options, [](const CollectiveRow&) {});
}

constexpr int kNever = 1'000'000;

/// Returns a call that takes `later_ms` after it was checked, warmed up and timed once.
FakeCall takes_ms(int first_ms, int later_ms) {
  return [=, calls = 0](auto&, auto&) mutable {
    constexpr int kUntilTheFirstIsTimed = 3;
    using Clock = std::chrono::steady_clock;
    const int ms = calls++ < kUntilTheFirstIsTimed ? first_ms : later_ms;
    const auto end = Clock::now() + std::chrono::milliseconds(ms);
    while (Clock::now() < end) continue;
  };
}

// Only cast elements are packed, so their price is higher.
TEST(AlgorithmChoice, PricesACast) {
  test::RuntimeJob(2, {.calibration_file = ""}).run([](Runtime& runtime) {
    const AlgorithmChoice choice(runtime);
    const CollectiveCase cast{.bytes = 1 << 20, .wire = DType::kBFloat16};
    const CollectiveCase plain{.bytes = 1 << 19, .dtype = DType::kBFloat16};
    test::require(choice.predict_us("direct", cast) > choice.predict_us("direct", plain), "price");
    CollectiveCase same = plain;
    same.wire = same.dtype;
    test::require(choice.predict_us("direct", same) == choice.predict_us("direct", plain), "same");
  });
}

// One iteration is less than requested.
TEST(CollectiveBench, AnAlgorithmThatWasDroppedIsNoRow) {
  Runtime runtime = one_rank();
  std::vector<std::pair<std::string, FakeCall>> calls = {{"soon dropped", takes_ms(2, 0)},
                                                         {"slower later", takes_ms(0, 4)}};
  const auto rows = measure(runtime, std::make_unique<FakeSystem>(std::move(calls)),
                            {.sizes = {64}, .iterations = 3});
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].algorithm, "slower later");
  EXPECT_EQ(rows[0].iterations, 3);
  EXPECT_EQ(rows[0].candidates.size(), 2u);
}

TEST(CollectiveBench, CountsAnElementThatIsWrongFromTheStart) {
  Runtime runtime = one_rank();
  const auto rows = measure(runtime, faulty({0}), {.sizes = {64}, .iterations = 4});
  ASSERT_EQ(rows.size(), 1u);
  // One wrong sum before the timed iterations, and one after.
  EXPECT_EQ(rows[0].wrong, 2u);
}

TEST(CollectiveBench, CountsAnElementThatBecomesWrong) {
  Runtime runtime = one_rank();
  const auto rows = measure(runtime, faulty({3}), {.sizes = {64}, .iterations = 4});
  EXPECT_EQ(rows.at(0).wrong, 1u);
}

/// On one rank, runs that write a result only once.
class LazySystem final : public CollectiveSystem {
 public:
  std::string name() const override { return "lazy"; }
  std::vector<std::unique_ptr<CollectiveRun>> prepare(const CollectiveCase& what) override {
    std::vector<std::unique_ptr<CollectiveRun>> runs;
    runs.push_back(std::make_unique<Run>(what));
    return runs;
  }

 private:
  class Run final : public MemoryRun {
   public:
    explicit Run(const CollectiveCase& what)
        : MemoryRun(CallerMemory(what, counts_of(what, 0, 1)), "once") {}
    void run() override {
      if (!std::exchange(has_run_, true)) memory_.copy_contribution();
    }

   private:
    bool has_run_ = false;
  };
};

TEST(CollectiveBench, CountsWhatAnEarlierRunWrote) {
  Runtime runtime = one_rank();
  const auto rows = measure(runtime, std::make_unique<LazySystem>(),
                            {.sizes = {64}, .places = {false}, .iterations = 4});
  EXPECT_EQ(rows.at(0).wrong, 64 / sizeof(float));
}

TEST(CollectiveBench, CountsWhatIsWrongInAWayThatIsNotTheBest) {
  Runtime runtime = one_rank();
  const auto rows = measure(runtime, faulty({kNever, 0, kNever}), {.sizes = {64}, .iterations = 4});
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_GE(rows[0].wrong.value_or(0), 1u);
  EXPECT_EQ(rows[0].candidates.size(), 3u);
}

TEST(CollectiveBench, CountsAContributionThatDidNotStayAsItWas) {
  Runtime runtime = one_rank();
  std::vector<std::pair<std::string, FakeCall>> calls = {
      {"scribbling", [](auto& contribution, auto&) { contribution.front() ^= std::byte{1}; }}};
  const auto rows = measure(runtime, std::make_unique<FakeSystem>(std::move(calls)),
                            {.sizes = {64}, .places = {true, false}, .iterations = 4});
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].wrong, 0u);  // in place, it is overwritten
  EXPECT_EQ(rows[1].wrong, 2u);
}

TEST(CollectiveBench, MeasuresEnoughIterationsForAMedianHoweverShortTheTime) {
  Runtime runtime = one_rank();
  const auto rows = measure(runtime, faulty({kNever}), {.sizes = {64}, .seconds = 1e-9});
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].iterations, kLeastIterations);
  EXPECT_EQ(rows[0].slowest_us.p99, std::nullopt);
}

TEST(CollectiveBench, KnowsNoLimitInsideANode) {
  Runtime runtime = one_rank();
  EXPECT_THROW(make_wire_limit(runtime), KoloError);
}

TEST(CollectiveCase, HasAnElementAtLeastUnlessItIsEmpty) {
  const CollectiveCase sum{.verb = Verb::kAllReduce}, gather{.verb = Verb::kAllGather};
  EXPECT_EQ(sum.whole_bytes(3, 2), 4u);
  EXPECT_EQ(sum.whole_bytes(7, 2), 4u);
  EXPECT_EQ(sum.whole_bytes(0, 2), 0u);
  EXPECT_EQ(gather.whole_bytes(4, 3), 12u);
}

// There are three ranks on two nodes. The last rank is alone on its node.
TEST(CollectiveCase, KnowsTheBytesThatANodeMustMove) {
  const std::vector<int> node_of{0, 0, 1};
  const std::map<Verb, std::size_t> floats = {
      {Verb::kAllReduce, 36},      // 2 (2 - 1) / 2 of all bytes
      {Verb::kReduce, 36},         // the sum of the other node
      {Verb::kBroadcast, 36},      // once to the other node
      {Verb::kReduceScatter, 24},  // the sums of two parts
      {Verb::kAllGather, 24},      // two parts
      {Verb::kGather, 12},         // the part of the other node
      {Verb::kScatter, 12},        // the part of the other node
      {Verb::kAllToAll, 24},       // two parts for each rank of the other node, or from it
  };
  for (const auto& [verb, expected] : floats) {
    const CollectiveCase what{.verb = verb, .bytes = 36 * sizeof(float)};
    EXPECT_EQ(least_wire_bytes(what, node_of), expected * sizeof(float)) << to_string(verb);
  }
}

TEST(CollectiveBench, MeasuresASystemWithoutAnArenaOnceForBothHomes) {
  Runtime runtime = one_rank();
  auto system = faulty({kNever});
  const FakeSystem& seen = *system;
  std::vector<std::unique_ptr<CollectiveSystem>> systems;
  systems.push_back(make_kolo_system(runtime));
  systems.push_back(std::move(system));
  systems.push_back(make_streaming_reference(runtime));
  const auto rows = measure_collective(runtime, systems,
                                       {.sizes = {kLeastBoundBytes},
                                        .homes = {Home::kArena, Home::kUser},
                                        .places = {true, false},
                                        .iterations = 3},
                                       [](const CollectiveRow&) {});
  std::vector<std::string> names;
  for (const CollectiveRow& row : rows) {
    names.push_back(row.system + " " + std::string(to_string(row.what.home)) +
                    (row.what.in_place ? " in" : " out"));
    EXPECT_EQ(row.iterations, 3);
    EXPECT_EQ(row.wrong.has_value(), row.system != "streaming");
    EXPECT_EQ(row.wrong.value_or(0), 0u);
    EXPECT_NE(row.algorithm, "auto") << names.back();
  }
  EXPECT_EQ(names, (std::vector<std::string>{"kolo arena in", "kolo arena out", "kolo user in",
                                             "kolo user out", "fake user in", "fake user out",
                                             "streaming user in", "streaming user out"}));
  EXPECT_EQ(seen.cases.size(), 2u);
}

TEST(CollectiveBench, FindsEveryCollectiveRightInBothPlaces) {
  test::RuntimeJob job(3, {.calibrate = "off"});
  job.run([](Runtime& runtime) {
    for (const Verb verb : kAllVerbs) {
      const VerbTraits& traits = traits_of(verb);
      CollectiveOptions options{.sizes = {0, 1200},
                                .homes = {Home::kUser},
                                .places = {traits.in_place},
                                .what = {.verb = verb, .width = 4},
                                .iterations = 2};
      if (has_other_place(verb)) options.places.push_back(!traits.in_place);
      const auto rows = measure(runtime, make_kolo_system(runtime), options);
      test::require(rows.size() == 2 * options.places.size(), std::string(to_string(verb)));
      for (const CollectiveRow& row : rows) {
        test::require(row.wrong == 0u, std::string(to_string(verb)) +
                                           (row.what.in_place ? " in place" : " out of place"));
      }
    }
  });
}

// Sizes hold whole elements of every dtype for each rank.
TEST(CollectiveBench, FindsEveryDtypeAndOperationRight) {
  test::RuntimeJob job(3, {.calibrate = "off"});
  job.run([](Runtime& runtime) {
    const auto require_right = [&](const CollectiveCase& what) {
      const auto rows = measure(runtime, make_kolo_system(runtime),
                                {.sizes = {480},
                                 .homes = {Home::kUser},
                                 .places = {false},
                                 .what = what,
                                 .iterations = 1,
                                 .rounds = 1});
      test::require(rows.size() == 1 && rows[0].wrong == 0u,
                    std::string(to_string(what.verb)) + " " + std::string(to_string(what.op)) +
                        " of " + std::string(to_string(what.dtype)));
    };
    for (const DType dtype : kAllDTypes) {
      require_right({.verb = Verb::kAllToAll, .dtype = dtype});
      for (const ReduceOp op : kEveryReduceOp) {
        if (takes(op, dtype)) require_right({.dtype = dtype, .op = op});
      }
    }
  });
}

// Contribution and result of rank 1 of 3 are in one buffer, which holds 4 elements for each rank.
TEST(CollectiveCase, InPlaceHasOneBuffer) {
  HostDevice device;
  for (const bool on_device : {false, true}) {
    for (const auto& [verb, contributed_at, received_at] : {std::tuple(Verb::kReduce, 0, 0),
                                                            {Verb::kReduceScatter, 0, 4},
                                                            {Verb::kAllGather, 4, 0},
                                                            {Verb::kAllToAll, 0, 0}}) {
      const CollectiveCase what{.verb = verb, .bytes = 12 * sizeof(float)};
      CallerMemory memory(what, counts_of(what, 1, 3),
                          on_device ? device_place(device) : host_place());
      auto* const in = static_cast<float*>(memory.contribution());
      auto* const out = static_cast<float*>(memory.result());
      EXPECT_EQ(in - out, contributed_at - received_at) << to_string(verb);
      std::array<float, 12> elements{}, found{};
      std::iota(elements.begin(), elements.end(), 1.0F);
      memory.write(elements.data());
      EXPECT_EQ(in[3], 4.0F) << to_string(verb);
      memory.read_contribution(found.data());
      EXPECT_EQ(found[3], 4.0F) << to_string(verb);
      if (verb == Verb::kReduce) continue;  // only rank 0 receives
      out[0] = 100.0F;
      memory.read(found.data());
      EXPECT_EQ(found[0], 100.0F) << to_string(verb);
    }
  }
}

TEST(CollectiveCase, OfMessagesPairsTheFirstRankWithTheLast) {
  const CollectiveCase what{.verb = Verb::kSendRecv, .bytes = 40};
  for (const int ranks : {1, 2, 3, 4}) {
    const CollectiveSpec spec = what.spec(ranks);
    EXPECT_EQ(spec.count(), 10u * static_cast<std::size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_EQ(partner(partner(rank, ranks), ranks), rank);
      EXPECT_TRUE(spec.part(static_cast<std::size_t>(rank)).contributes(rank));
      EXPECT_TRUE(spec.part(static_cast<std::size_t>(rank)).receives(partner(rank, ranks)));
      EXPECT_EQ(counts_of(what, rank, ranks).contributed, 10u);
      EXPECT_EQ(counts_of(what, rank, ranks).received, 10u);
    }
  }
}

}  // namespace
}  // namespace kolo::bench
