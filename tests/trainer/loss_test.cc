#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "comm/base/error.h"
#include "trainer/loss/softmax_cross_entropy.h"

namespace kolo::trainer {
namespace {

TEST(SoftmaxCrossEntropyTest, FollowsHandValues) {
  SoftmaxCrossEntropy loss(2, 3);
  const std::vector<float> logits = {0.0f, std::log(2.0f), 0.0f, 5.0f, 5.0f, 5.0f};
  const LossSums sums = loss.evaluate(logits, std::vector<std::uint8_t>{1, 2}, 2.0f);
  // Row 0: p = 1/4, 1/2, 1/4. Row 1: thirds.
  EXPECT_NEAR(sums.loss, std::log(2.0) + std::log(3.0), 1e-6);
  EXPECT_EQ(sums.correct, 1.0);
  EXPECT_EQ(sums.rows, 2.0);
  const std::vector<float> expected = {0.5f, -1.0f, 0.5f, 2.0f / 3.0f, 2.0f / 3.0f, -4.0f / 3.0f};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(loss.gradient()[i], expected[i], 1e-6f) << i;
  }
}

TEST(SoftmaxCrossEntropyTest, LargeLogitsDoNotOverflow) {
  SoftmaxCrossEntropy loss(1, 2);
  const LossSums sums =
      loss.evaluate(std::vector<float>{1e4f, -1e4f}, std::vector<std::uint8_t>{1}, 1.0f);
  EXPECT_NEAR(sums.loss, 2e4, 1.0);
  EXPECT_TRUE(std::isfinite(loss.gradient()[0]));
}

TEST(SoftmaxCrossEntropyTest, PaddingHasNoGradient) {
  SoftmaxCrossEntropy loss(3, 2);
  const std::vector<float> logits(6, 1.0f);
  loss.evaluate(logits, std::vector<std::uint8_t>{0, 1, 1}, 1.0f);
  const LossSums sums = loss.evaluate(logits, std::vector<std::uint8_t>{1}, 1.0f);
  EXPECT_EQ(sums.rows, 1.0);
  EXPECT_NE(loss.gradient()[1], 0.0f);
  for (std::size_t i = 2; i < 6; ++i) EXPECT_EQ(loss.gradient()[i], 0.0f);
  EXPECT_EQ(loss.evaluate(logits, {}, 1.0f).rows, 0.0);
  EXPECT_EQ(loss.gradient()[0], 0.0f);
}

TEST(SoftmaxCrossEntropyTest, TargetMustBeAClass) {
  SoftmaxCrossEntropy loss(1, 2);
  EXPECT_THROW(loss.evaluate(std::vector<float>{0, 0}, std::vector<std::uint8_t>{2}, 1.0f),
               UsageError);
}

}  // namespace
}  // namespace kolo::trainer
