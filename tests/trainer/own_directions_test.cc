#include "trainer/optimizer/own_directions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "trainer/random.h"

namespace kolo::trainer {
namespace {

constexpr Optimizer::Adaptation kAdam{.beta2 = 0.99f, .epsilon = 1e-8f};

struct OneParameter {
  explicit OneParameter(std::size_t count) : w(parameters.add("w", {1, count}, {})) {
    parameters.own_gradients();
  }
  std::span<float> gradient() { return w.gradient(); }
  void set(float value) {
    for (float& g : gradient()) g = value;
  }

  ParameterSet parameters{1};
  Parameter& w;
  OwnDirections directions{parameters, kAdam};
};

TEST(OwnDirectionsTest, FollowHandValues) {
  OneParameter p(9);
  p.set(12.0f);
  p.directions.observe(0, 0.5f);  // with a loss scale of 2
  p.set(4.0f);                    // the average
  p.directions.observe_average(0, 0.5f);
  p.directions.commit();
  // Averages have 4 / 36 of the squares. v = 0.99 · 0.01 · 36 + 0.01 · 16, corrected / 0.0199. The
  // first step is skipped, and must have no effect.
  const double direction = -4.0 / std::sqrt((0.99 * 0.36 + 0.16) / 0.0199 * 4 / 36);
  for (int time = 0; time < 2; ++time) {
    p.set(-4.0f);
    p.directions.turn(0);
    for (const float g : p.gradient()) EXPECT_NEAR(g, direction, 1e-5);
  }
  // A gradient that is not finite belongs to a skipped step.
  p.set(std::numeric_limits<float>::infinity());
  p.directions.turn(0);
  for (const float g : p.gradient()) EXPECT_FALSE(std::isfinite(g));
  p.set(-4.0f);
  p.directions.turn(0);
  for (const float g : p.gradient()) EXPECT_NEAR(g, direction, 1e-5);
}

// A moment without observations must not count as one with twenty zeros, which would make the first
// directions 4.4 times too long.
TEST(OwnDirectionsTest, WithoutObservationsBeginWithLengthOne) {
  OneParameter p(9);
  for (const float value : {0.5f, 0.5f, 0.5f}) {
    p.set(value);
    p.directions.turn(0);
    for (const float g : p.gradient()) EXPECT_NEAR(g, 1.0f, 1e-5f);
    p.directions.commit();
  }
}

/// Simulates ranks whose gradients are a common signal plus separate noise.
class SimulatedRanks {
 public:
  SimulatedRanks(int ranks, double signal_share) : signal_(std::sqrt(signal_share)) {
    for (int rank = 0; rank < ranks; ++rank)
      ranks_.push_back(std::make_unique<OneParameter>(kCount));
  }

  /// Returns the root mean square of an element of the averages in dense steps, after many steps.
  double observe() {
    double squares = 0;
    for (int step = 0; step < kSteps; ++step) {
      draw();
      for (auto& rank : ranks_) rank->directions.observe(0, 1.0f);
      const std::vector<float> mean = average();
      for (auto& rank : ranks_) {
        std::ranges::copy(mean, rank->gradient().begin());
        rank->directions.observe_average(0, 1.0f);
        rank->directions.commit();
      }
      squares += mean_square(mean);
    }
    return std::sqrt(squares / kSteps);
  }
  /// Returns the root mean square of an element of the averages of directions.
  double turn() {
    double squares = 0;
    for (int step = 0; step < kSteps; ++step) {
      draw();
      for (auto& rank : ranks_) rank->directions.turn(0);
      squares += mean_square(average());
      for (auto& rank : ranks_) rank->directions.commit();
    }
    return std::sqrt(squares / kSteps);
  }

 private:
  static constexpr std::size_t kCount = 512;
  static constexpr int kSteps = 100;
  static constexpr float kRoot3 = 1.7320508f;

  void draw() {
    for (auto& rank : ranks_) {
      for (float& g : rank->gradient()) {
        const float noise = kRoot3 * (2.0f * random_.uniform() - 1.0f);
        g = static_cast<float>(signal_ + std::sqrt(1 - signal_ * signal_) * noise);
      }
    }
  }
  std::vector<float> average() {
    std::vector<float> mean(kCount, 0.0f);
    for (auto& rank : ranks_) {
      for (std::size_t i = 0; i < kCount; ++i) mean[i] += rank->gradient()[i];
    }
    for (float& value : mean) value /= static_cast<float>(ranks_.size());
    return mean;
  }
  static double mean_square(const std::vector<float>& values) {
    double squares = 0;
    for (const float value : values) squares += double{value} * value;
    return squares / static_cast<double>(values.size());
  }

  double signal_;
  Random random_{7};
  std::vector<std::unique_ptr<OneParameter>> ranks_;
};

// AdamW's directions have a root mean square of about one: averages divided by the root of their
// mean square. Bound: an element's second moment averages about 100 steps, so its root is wrong by
// a few per cent; 5 % allows for that.
TEST(OwnDirectionsTest, AreAsLongAsThoseOfAveragesForAnyNumberOfRanks) {
  for (const int ranks : {1, 2, 4, 8, 16}) {
    for (const double signal_share : {0.0, 0.1, 0.5, 1.0}) {
      SCOPED_TRACE(testing::Message() << ranks << " ranks, signal " << signal_share);
      SimulatedRanks simulated(ranks, signal_share);
      const double average = simulated.observe();
      const double expected = std::sqrt(signal_share + (1 - signal_share) / ranks);
      EXPECT_NEAR(average, expected, 0.05 * expected) << "of the simulation itself";
      EXPECT_NEAR(simulated.turn(), 1.0, 0.05);
    }
  }
}

}  // namespace
}  // namespace kolo::trainer
