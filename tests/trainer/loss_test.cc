#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "comm/base/error.h"
#include "trainer/loss/loss.h"

namespace kolo::trainer {
namespace {

template <typename T>
LossSums evaluate_as(Loss& loss, const std::vector<float>& output, const std::vector<T>& wanted,
                     float row_weight) {
  const TensorView targets[] = {wanted};
  return loss.evaluate(output, targets, row_weight);
}

LossSums evaluate(SoftmaxCrossEntropy& loss, const std::vector<float>& logits,
                  const std::vector<std::int32_t>& classes, float row_weight) {
  return evaluate_as(loss, logits, classes, row_weight);
}

TEST(SoftmaxCrossEntropyTest, FollowsHandValues) {
  SoftmaxCrossEntropy loss({.rows = 2, .classes = 3});
  const std::vector<float> logits = {0.0f, std::log(2.0f), 0.0f, 5.0f, 5.0f, 5.0f};
  const LossSums sums = evaluate(loss, logits, {1, 2}, 2.0f);
  // Row 0: p = 1/4, 1/2, 1/4. Row 1: p = 1/3 each.
  EXPECT_NEAR(sums.loss, std::log(2.0) + std::log(3.0), 1e-6);
  EXPECT_EQ(sums.score, 1.0);
  EXPECT_EQ(sums.rows, 2.0);
  const std::vector<float> expected = {0.5f, -1.0f, 0.5f, 2.0f / 3.0f, 2.0f / 3.0f, -4.0f / 3.0f};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(loss.gradient()[i], expected[i], 1e-6f) << i;
  }
}

TEST(SoftmaxCrossEntropyTest, LargeLogitsDoNotOverflow) {
  SoftmaxCrossEntropy loss({.rows = 1, .classes = 2});
  const LossSums sums = evaluate(loss, {1e4f, -1e4f}, {1}, 1.0f);
  EXPECT_NEAR(sums.loss, 2e4, 1.0);
  EXPECT_TRUE(std::isfinite(loss.gradient()[0]));
}

TEST(SoftmaxCrossEntropyTest, NanOfAnyClassIsSeen) {
  constexpr std::size_t kClasses = 19;
  SoftmaxCrossEntropy loss({.rows = 1, .classes = kClasses});
  for (std::size_t i = 0; i < kClasses; ++i) {
    std::vector<float> logits(kClasses, 1.0f);
    logits[i] = std::numeric_limits<float>::quiet_NaN();
    const auto target = static_cast<std::int32_t>((i + 1) % kClasses);
    EXPECT_TRUE(std::isnan(evaluate(loss, logits, {target}, 1.0f).loss)) << i;
    for (const float gradient : loss.gradient()) EXPECT_TRUE(std::isnan(gradient)) << i;
  }
}

TEST(SoftmaxCrossEntropyTest, PaddingHasNoGradient) {
  SoftmaxCrossEntropy loss({.rows = 3, .classes = 2});
  const std::vector<float> logits(6, 1.0f);
  evaluate(loss, logits, {0, 1, 1}, 1.0f);
  const LossSums sums = evaluate(loss, logits, {1}, 1.0f);
  EXPECT_EQ(sums.rows, 1.0);
  EXPECT_NE(loss.gradient()[1], 0.0f);
  for (std::size_t i = 2; i < 6; ++i) EXPECT_EQ(loss.gradient()[i], 0.0f);
  EXPECT_EQ(evaluate(loss, logits, {}, 1.0f).rows, 0.0);
  EXPECT_EQ(loss.gradient()[0], 0.0f);
}

TEST(SoftmaxCrossEntropyTest, RowsWithoutTargetDoNotCount) {
  const SoftmaxCrossEntropy::Options two{.rows = 2, .classes = 2, .label_smoothing = 0.1f};
  SoftmaxCrossEntropy without(two);
  const LossSums expected = evaluate(without, {1.0f, 0.0f, 0.0f, 1.0f}, {0, 0}, 1.0f);
  SoftmaxCrossEntropy loss({.rows = 3, .classes = 2, .label_smoothing = 0.1f});
  const LossSums sums =
      evaluate(loss, {1.0f, 0.0f, 5.0f, -5.0f, 0.0f, 1.0f}, {0, kNoTarget, 0}, 1.0f);
  EXPECT_EQ(sums.rows, 2.0);
  EXPECT_EQ(sums.loss, expected.loss);
  EXPECT_EQ(sums.score, expected.score);
  std::vector<float> gradient(without.gradient().begin(), without.gradient().end());
  gradient.insert(gradient.begin() + 2, {0.0f, 0.0f});
  EXPECT_EQ(std::vector<float>(loss.gradient().begin(), loss.gradient().end()), gradient);
}

TEST(SoftmaxCrossEntropyTest, TargetMustBeAClass) {
  SoftmaxCrossEntropy loss({.rows = 1, .classes = 2});
  EXPECT_THROW(evaluate(loss, {0, 0}, {2}, 1.0f), UsageError);
  EXPECT_THROW(evaluate(loss, {0, 0}, {-2}, 1.0f), UsageError);
}

// With smoothing s, the target's probability is 1 - s + s / classes, all others' s / classes.
TEST(SoftmaxCrossEntropyTest, SmoothingMovesTheTargetAndLeavesTheLoss) {
  SoftmaxCrossEntropy plain({.rows = 1, .classes = 4});
  SoftmaxCrossEntropy smooth({.rows = 1, .classes = 4, .label_smoothing = 0.2f});
  const std::vector<float> logits = {1.0f, 0.0f, -1.0f, 0.5f};
  EXPECT_EQ(evaluate(plain, logits, {2}, 3.0f).loss, evaluate(smooth, logits, {2}, 3.0f).loss);
  for (std::size_t i = 0; i < 4; ++i) {
    const float moved = i == 2 ? -0.2f + 0.05f : 0.05f;
    EXPECT_NEAR(smooth.gradient()[i], plain.gradient()[i] - 3.0f * moved, 1e-6f) << i;
  }
}

TEST(SquaredErrorTest, FollowsHandValuesAndLeavesPaddingOut) {
  SquaredError loss(3);
  const LossSums sums = evaluate_as(loss, {4.0f, 1.0f, 9.0f}, std::vector<float>{3.0f, 3.0f}, 0.5f);
  EXPECT_EQ(sums.loss, 0.5 * (1.0 + 4.0));
  EXPECT_EQ(sums.score, 1.0 + 4.0);
  EXPECT_EQ(sums.rows, 2.0);
  EXPECT_EQ(std::vector<float>(loss.gradient().begin(), loss.gradient().end()),
            (std::vector<float>{0.5f, -1.0f, 0.0f}));
}

TEST(MetricTest, SharesAreWrittenInPerCent) {
  const Metric accuracy;
  EXPECT_EQ(accuracy.of({.score = 1.0, .rows = 4.0}), 0.25);
  EXPECT_EQ(describe(accuracy, 0.25), "accuracy 25.00 %");
  const Metric rmse{
      .name = "rmse", .is_higher_better = false, .is_share = false, .value = [](double mean) {
        return std::sqrt(mean);
      }};
  EXPECT_EQ(rmse.of({.score = 8.0, .rows = 2.0}), 2.0);
  EXPECT_EQ(describe(rmse, 2.0), "rmse 2.0000");
}

}  // namespace
}  // namespace kolo::trainer
