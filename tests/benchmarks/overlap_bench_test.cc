#include "benchmarks/overlap/overlap_bench.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/benchmarks/fake_system.h"

namespace kolo::bench {
namespace {

/// Records its calls. On one rank, sums are the inputs times `factor`.
class RecordingSystem final : public OverlapSystem {
 public:
  explicit RecordingSystem(float factor) : factor_(factor) {}
  std::string name() const override { return "recording"; }
  std::string algorithm() const override { return "none"; }
  Calls calls() const override { return Calls::kEach; }
  void ready(std::size_t index) override { marked.push_back(index); }
  void finish() override {
    value_ *= factor_;
    iterations.push_back(std::exchange(marked, {}));
  }
  void fill(float value) override { value_ = value; }
  std::uint64_t count_other_than(float value) override { return value_ == value ? 0 : 1; }

  std::vector<std::size_t> marked;
  std::vector<std::vector<std::size_t>> iterations;

 private:
  float factor_;
  float value_ = 0;
};

TEST(TransformerGradients, HaveTheParametersOfATransformer) {
  const auto counts = transformer_gradients(2, 10);
  EXPECT_EQ(counts.size(), 24u);
  // Each layer has 12 width² in matrices, 4 width in norms, and 9 width in biases.
  EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), std::size_t{0}),
            2u * (1200u + 40u + 90u));
}

TEST(OverlapBench, MarksEveryGradientInItsOrderAndCountsWrongSums) {
  Runtime runtime = Runtime::from_environment({});
  auto right = std::make_unique<RecordingSystem>(1.0f);
  const RecordingSystem& seen = *right;
  std::vector<std::unique_ptr<OverlapSystem>> systems;
  systems.push_back(std::move(right));
  systems.push_back(std::make_unique<RecordingSystem>(2.0f));
  const auto rows = measure_overlap(
      runtime, systems, {.counts = {5, 1, 3}, .compute_ms = 0.01, .iterations = 2, .warmup = 1});
  // Each iteration runs once without computation and once with it; a last run is for the check.
  ASSERT_EQ(seen.iterations.size(), 2u * 3u + 1u);
  for (const auto& iteration : seen.iterations) {
    EXPECT_EQ(iteration, (std::vector<std::size_t>{2, 1, 0}));
  }
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].wrong, 0u);
  EXPECT_EQ(rows[1].wrong, 1u);
  EXPECT_EQ(rows[0].exposed_us, rows[0].iteration_us - rows[0].compute_us);
}

TEST(OverlapBench, RunsOnKoloInEitherMemory) {
  Runtime runtime = Runtime::from_environment({});
  const OverlapOptions options = {
      .counts = transformer_gradients(1, 8), .compute_ms = 0.01, .iterations = 2, .warmup = 1};
  for (Home home : {Home::kArena, Home::kUser}) {
    std::vector<std::unique_ptr<OverlapSystem>> systems;
    systems.push_back(make_kolo_overlap(runtime, options.counts, home));
    const auto rows = measure_overlap(runtime, systems, options);
    EXPECT_EQ(rows.at(0).wrong, 0u);
    EXPECT_EQ(rows.at(0).fusion_bytes, runtime.options().fusion_bytes);
  }
}

/// Waits for single gradients, and records their order.
class WaitingSystem final : public OverlapSystem {
 public:
  std::string name() const override { return "waiting"; }
  std::string algorithm() const override { return "none"; }
  Calls calls() const override { return Calls::kBuckets; }
  void ready(std::size_t) override {}
  bool await(std::size_t index) override {
    awaited.push_back(index);
    return true;
  }
  void finish() override { ends.push_back(awaited.size()); }
  void fill(float) override {}
  std::uint64_t count_other_than(float) override { return 0; }

  std::vector<std::size_t> awaited, ends;
};

TEST(OverlapBench, UpdatesLayerByLayerWhereASystemCanWaitForOne) {
  Runtime runtime = Runtime::from_environment({});
  auto waiting = std::make_unique<WaitingSystem>();
  const WaitingSystem& seen = *waiting;
  std::vector<std::unique_ptr<OverlapSystem>> systems;
  systems.push_back(std::move(waiting));
  const auto rows = measure_overlap(
      runtime, systems,
      {.counts = {5, 1, 3}, .compute_ms = 0.01, .update_ms = 20, .iterations = 1, .warmup = 0});
  // Communication alone waits for all together. The iteration and the check follow.
  EXPECT_EQ(seen.awaited, (std::vector<std::size_t>{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(seen.ends, (std::vector<std::size_t>{0, 3, 6}));
  // Without the update, which is more than half of the iteration before the last gradient.
  EXPECT_LT(rows.at(0).first_us, rows[0].iteration_us / 2);
}

TEST(OverlapBench, BlockingCallsAreOneForAllOrOneForEach) {
  Runtime runtime = Runtime::from_environment({});
  const std::vector<std::size_t> counts{5, 1, 3};
  const auto sizes_of = [&](Calls calls) {
    std::vector<std::size_t> sizes;
    FakeSystem peer({{"only", [&](auto&, auto& sum) { sizes.push_back(sum.size()); }}});
    std::vector<std::unique_ptr<OverlapSystem>> systems;
    systems.push_back(make_blocking_overlap(runtime, peer, counts, calls));
    sizes.clear();
    const auto rows = measure_overlap(
        runtime, systems, {.counts = counts, .compute_ms = 0.01, .iterations = 1, .warmup = 0});
    EXPECT_EQ(rows.at(0).wrong, 0u) << to_string(calls);
    EXPECT_EQ(rows.at(0).calls, calls);
    return sizes;
  };
  // One call without computation, one with it, and one for the check.
  EXPECT_EQ(sizes_of(Calls::kFlat), (std::vector<std::size_t>{36, 36, 36}));
  EXPECT_EQ(sizes_of(Calls::kPacked), (std::vector<std::size_t>{36, 36, 36}));
  EXPECT_EQ(sizes_of(Calls::kEach), (std::vector<std::size_t>{12, 4, 20, 12, 4, 20, 12, 4, 20}));
}

}  // namespace
}  // namespace kolo::bench
