#include "fusion/place_runs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "comm/schedule/bucket_layout.h"

namespace kolo {
namespace {

/// Gradients of these sizes, in order of their places; `turns` lists them in order of readiness.
std::vector<PlacedGradient> placed(const std::vector<std::size_t>& bytes,
                                   const std::vector<std::size_t>& turns) {
  std::vector<PlacedGradient> gradients(bytes.size());
  std::size_t ready = 0;
  for (const std::size_t i : turns) {
    gradients[i] = {.bytes = bytes[i], .ready_after = ready};
    ready += bytes[i];
  }
  return gradients;
}

using Runs = std::vector<PlaceRun>;

TEST(PlaceRuns, AreFilledGreedilyWhereNeighboursAreReadyOneAfterTheOther) {
  const std::vector<std::size_t> bytes(5, 64);
  const Runs greedy = {{0, 2}, {2, 4}, {4, 5}};
  EXPECT_EQ(cut_into_runs(placed(bytes, {0, 1, 2, 3, 4}), 128), greedy);
  EXPECT_EQ(cut_into_runs(placed(bytes, {4, 3, 2, 1, 0}), 128), greedy);
}

// The first gradient of all, ready at the end, does not keep its neighbours.
TEST(PlaceRuns, LeaveAloneWhatIsReadyMuchLater) {
  const std::vector<std::size_t> bytes(6, 64);
  EXPECT_EQ(cut_into_runs(placed(bytes, {1, 2, 3, 4, 5, 0}), 192), (Runs{{0, 1}, {1, 4}, {4, 6}}));
  // With larger buckets it would share the last one wherever it lay.
  EXPECT_EQ(cut_into_runs(placed(bytes, {1, 2, 3, 4, 5, 0}), 320), (Runs{{0, 5}, {5, 6}}));
}

TEST(PlaceRuns, HaveGradientsAloneThatAreTooLarge) {
  EXPECT_EQ(cut_into_runs(placed({64, 1000, 64, 0}, {0, 1, 2, 3}), 128),
            (Runs{{0, 1}, {1, 2}, {2, 4}}));
  EXPECT_EQ(cut_into_runs(placed({64, 64}, {1, 0}), 0), (Runs{{0, 1}, {1, 2}}));
  EXPECT_EQ(cut_into_runs({}, 128), Runs{});
}

TEST(PlaceRuns, HoldEachGradientOnceWithinTheLimit) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    std::vector<std::size_t> bytes(random() % 30), turns(bytes.size());
    for (std::size_t& each : bytes) each = random() % 500;
    std::iota(turns.begin(), turns.end(), std::size_t{0});
    if (seed % 4 != 0) std::ranges::shuffle(turns, random);
    const std::size_t limit = random() % 2000;
    std::size_t next = 0;
    for (const PlaceRun& run : cut_into_runs(placed(bytes, turns), limit)) {
      ASSERT_EQ(run.begin, next);
      ASSERT_GT(run.end, run.begin);
      std::size_t size = 0;
      for (std::size_t i = run.begin; i < run.end; ++i) {
        size = (size + kWireAlignment - 1) / kWireAlignment * kWireAlignment + bytes[i];
      }
      ASSERT_TRUE(run.end == run.begin + 1 || size <= limit);
      next = run.end;
    }
    ASSERT_EQ(next, bytes.size());
  }
}

}  // namespace
}  // namespace kolo
