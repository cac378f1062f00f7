#include "trainer/layers/elementwise.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/trainer/finite_difference.h"

namespace kolo::trainer {
namespace {

constexpr std::size_t kWidth = 50;

/// Which elements are kept, of samples from `position` on.
std::vector<float> mask(const Dropout::Options& options, const Pass& pass) {
  Dropout layer(options);
  const auto y = layer.forward(std::vector<float>(options.samples * options.width, 1.0f), pass);
  return {y.begin(), y.end()};
}

TEST(DropoutTest, GradientsMatchDifferences) {
  ParameterSet none(1);
  Dropout layer({.samples = 4, .width = kWidth, .mask = {.share = 0.3f, .seed = 1}});
  check_layer(layer, none, random_values(4 * kWidth, 2));
}

// 20,000 independent elements: five deviations of the share are 5 sqrt(0.3 · 0.7 / 20000) = 0.016.
TEST(DropoutTest, DropsItsShareAndKeepsTheMean) {
  const std::vector<float> y =
      mask({.samples = 400, .width = kWidth, .mask = {.share = 0.3f, .seed = 1}}, {});
  double dropped = 0;
  double sum = 0;
  for (const float value : y) {
    EXPECT_TRUE(value == 0.0f || value == 1.0f / 0.7f) << value;
    dropped += value == 0.0f;
    sum += value;
  }
  EXPECT_NEAR(dropped / 20000, 0.3, 0.016);
  EXPECT_NEAR(sum / 20000, 1.0, 0.016 / 0.7);
}

TEST(DropoutTest, LeavesEvaluationAlone) {
  Dropout layer({.samples = 2, .width = kWidth, .mask = {.share = 0.3f, .seed = 1}});
  const std::vector<float> x = random_values(2 * kWidth, 3);
  const auto y = layer.forward(x, {.is_training = false});
  EXPECT_EQ(std::vector<float>(y.begin(), y.end()), x);
}

// Two ranks with two samples each drop what one rank with four drops.
TEST(DropoutTest, FollowsTheSampleWhateverTheBatch) {
  Dropout::Options options{.samples = 4, .width = kWidth, .mask = {.share = 0.5f, .seed = 1}};
  const Pass whole{.epoch = 3, .first_position = 10};
  const std::vector<float> all = mask(options, whole);
  options.samples = 2;
  std::vector<float> parts = mask(options, whole);
  const std::vector<float> second = mask(options, {.epoch = 3, .first_position = 12});
  parts.insert(parts.end(), second.begin(), second.end());
  EXPECT_EQ(parts, all);
}

TEST(DropoutTest, DiffersBySeedLayerEpochAndPosition) {
  const Dropout::Options options{.samples = 1, .width = kWidth, .mask = {.share = 0.5f, .seed = 1}};
  const std::vector<float> first = mask(options, {});
  Dropout::Options other = options;
  other.mask.seed = 2;
  EXPECT_NE(mask(other, {}), first);
  other = options;
  other.mask.layer = 1;
  EXPECT_NE(mask(other, {}), first);
  EXPECT_NE(mask(options, {.epoch = 1}), first);
  EXPECT_NE(mask(options, {.first_position = 1}), first);
}

}  // namespace
}  // namespace kolo::trainer
