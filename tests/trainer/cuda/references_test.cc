// The references of trainer/cuda/kernels against the kernels of the host trainer, in float32: both
// round the same exact values, so they differ by float32 roundings of sums of at most 100 terms.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "tests/trainer/cuda/references.h"
#include "tests/trainer/finite_difference.h"
#include "trainer/cuda/kernels/elementwise.h"
#include "trainer/cuda/kernels/layer_norm.h"
#include "trainer/cuda/kernels/softmax.h"
#include "trainer/cuda/kernels/update.h"
#include "trainer/kernels/kernels.h"

namespace kolo::trainer::cuda {
namespace {

constexpr float kBound = 100 * 0x1.0p-24f;

void expect_near(std::span<const float> actual, std::span<const float> expected,
                 const std::string& what, float bound = kBound) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  float scale = 1.0f;
  for (const float value : expected) scale = std::max(scale, std::abs(value));
  for (std::size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], bound * scale) << what << "[" << i << "]";
  }
}

TEST(References, LayerNorm) {
  constexpr std::size_t kRows = 7, kWidth = 40;
  const auto x = random_values(kRows * kWidth, 1), dy = random_values(kRows * kWidth, 2);
  const auto gain = random_values(kWidth, 3), bias = random_values(kWidth, 4);
  const auto residual = random_values(kRows * kWidth, 5);
  std::vector<float> y(x.size()), mean(kRows), rstd(kRows), dx(x.size()), dgain(kWidth),
      dbias(kWidth);
  auto expected_y = y, expected_mean = mean, expected_rstd = rstd, expected_dx = dx,
       expected_dgain = dgain, expected_dbias = dbias;
  trainer::layer_norm(x, gain, bias, expected_y, expected_mean, expected_rstd);
  trainer::layer_norm_backward(dy, x, gain, expected_mean, expected_rstd, expected_dx,
                               expected_dgain, expected_dbias, Into::kOverwrite);
  for (std::size_t i = 0; i < dx.size(); ++i) expected_dx[i] += residual[i];
  reference::layer_norm({.dtype = DType::kFloat32,
                         .rows = kRows,
                         .width = kWidth,
                         .x = x.data(),
                         .gain = gain.data(),
                         .bias = bias.data(),
                         .y = y.data(),
                         .mean = mean.data(),
                         .rstd = rstd.data()});
  reference::layer_norm_backward({.dtype = DType::kFloat32,
                                  .rows = kRows,
                                  .width = kWidth,
                                  .dy = dy.data(),
                                  .x = x.data(),
                                  .gain = gain.data(),
                                  .mean = mean.data(),
                                  .rstd = rstd.data(),
                                  .residual = residual.data(),
                                  .dx = dx.data(),
                                  .partials = nullptr,
                                  .dgain = dgain.data(),
                                  .dbias = dbias.data()});
  expect_near(y, expected_y, "y");
  expect_near(dx, expected_dx, "dx");
  expect_near(dgain, expected_dgain, "dgain");
  expect_near(dbias, expected_dbias, "dbias");
}

TEST(References, CausalSoftmax) {
  constexpr std::size_t kLength = 33;
  auto weights = random_values(kLength * kLength, 1);
  auto gradient = random_values(kLength * kLength, 2);
  auto expected_weights = weights, expected_gradient = gradient;
  trainer::causal_softmax(expected_weights, kLength, 1.0f);
  trainer::causal_softmax_backward(expected_weights, expected_gradient, kLength, 1.0f);
  reference::causal_softmax(
      {.dtype = DType::kFloat32, .matrices = 1, .length = kLength, .scores = weights.data()});
  reference::causal_softmax_backward({.dtype = DType::kFloat32,
                                      .matrices = 1,
                                      .length = kLength,
                                      .weights = weights.data(),
                                      .gradient = gradient.data()});
  expect_near(weights, expected_weights, "weights");
  expect_near(gradient, expected_gradient, "gradient");
}

TEST(References, Activations) {
  const auto x = random_values(257, 1);
  for (const Activation activation : {Activation::kRelu, Activation::kGelu}) {
    std::vector<float> y(x.size()), slopes(x.size(), 1.0f), expected_y(x.size()),
        expected_slopes(x.size());
    (activation == Activation::kRelu ? trainer::relu : trainer::gelu)(x, expected_y,
                                                                      expected_slopes);
    reference::bias_activation({.activation = activation,
                                .dtype = DType::kFloat32,
                                .rows = 1,
                                .width = x.size(),
                                .x = x.data(),
                                .bias = nullptr,
                                .before = nullptr,
                                .y = y.data()});
    reference::activation_backward(activation, DType::kFloat32, x.data(), x.size(), slopes.data());
    expect_near(y, expected_y, "y");
    expect_near(slopes, expected_slopes, "slope");
  }
}

TEST(References, CrossEntropyCountsTargetsAndLeavesPaddingOut) {
  constexpr std::size_t kRows = 5, kClasses = 10;
  const std::vector<std::uint8_t> targets{3, 0, 9};
  auto logits = random_values(kRows * kClasses, 1);
  logits[kClasses + 4] = logits[kClasses] = 5.0f;  // row 1: the target is the first of two equals
  std::vector<float> gradient(logits.size()), results(2 * kRows);
  const BatchHeader header{.row_weight = 0.25f, .loss_scale = 8.0f, .targets = 3};
  LossTotals totals{.loss = 1.0, .correct = 0.0};
  reference::cross_entropy({.dtype = DType::kFloat32,
                            .rows = kRows,
                            .classes = kClasses,
                            .logits = logits.data(),
                            .targets = targets.data(),
                            .header = &header,
                            .gradient = gradient.data(),
                            .row_results = results.data(),
                            .totals = &totals});
  double loss = 1.0;
  for (std::size_t r = 0; r < targets.size(); ++r) {
    const std::span<float> row(&logits[r * kClasses], kClasses);
    loss += static_cast<double>(trainer::softmax_cross_entropy(row, targets[r], 2.0f));
  }
  std::fill(logits.begin() + 3 * kClasses, logits.end(), 0.0f);
  expect_near(gradient, logits, "gradient");
  EXPECT_NEAR(totals.loss, loss, 1e-5);
  EXPECT_GE(totals.correct, 1.0);
  EXPECT_EQ(results[3], 1.0f) << "row 1 hits";
}

TEST(References, PixelsArePaddedWithZeros) {
  const std::vector<std::uint8_t> bytes{0, 255, 7};
  std::vector<float> table(256), out(6, -1.0f);
  for (std::size_t i = 0; i < table.size(); ++i) table[i] = static_cast<float>(i) / 2.0f;
  reference::scale_pixels({.bytes = bytes.data(),
                           .table = table.data(),
                           .count = 3,
                           .channels = 2,
                           .dtype = DType::kFloat32,
                           .into = out.data()});
  EXPECT_EQ(out, (std::vector<float>{0.0f, 0.0f, 127.5f, 0.0f, 3.5f, 0.0f}));
}

/// One parameter of 33 elements, as the update sees it.
struct OneParameter {
  std::vector<float> gradient = random_values(33, 1);
  std::vector<float> value = random_values(33, 2);
  std::vector<float> first = std::vector<float>(33);
  std::vector<float> second = std::vector<float>(33);
  std::vector<UpdateChunk> chunks{
      {.gradient = gradient.data(), .offset = 0, .count = 33, .decays = 1}};

  UpdateArrays arrays() {
    return {.chunks = chunks.data(),
            .chunk_count = 1,
            .values = value.data(),
            .first = first.data(),
            .second = second.data(),
            .copy_dtype = DType::kFloat32,
            .copy = nullptr};
  }
};

TEST(References, AdamWFollowsTheHostTrainer) {
  OneParameter actual, expected;
  UpdateDecision decision;
  const AdamWRates rates{
      .lr = 0.1f, .beta1 = 0.9f, .beta2 = 0.99f, .epsilon = 1e-8f, .weight_decay = 0.1f};
  for (int step = 1; step <= 3; ++step) {
    reference::decide_update(
        actual.arrays(), {.gradient_scale = 0.5f, .clip_norm = 0.0, .beta1 = 0.9f, .beta2 = 0.99f},
        nullptr, &decision);
    reference::update_adamw(actual.arrays(), rates, &decision);
    trainer::adamw_update(
        {.lr = 0.1f,
         .beta1 = 0.9f,
         .beta2 = 0.99f,
         .epsilon = 1e-8f,
         .weight_decay = 0.1f,
         .bias_correction1 = static_cast<float>(1.0 / (1.0 - std::pow(double{0.9f}, step))),
         .bias_correction2 = static_cast<float>(1.0 / (1.0 - std::pow(double{0.99f}, step))),
         .gradient_scale = 0.5f},
        expected.gradient, expected.first, expected.second, expected.value);
  }
  EXPECT_EQ(decision.steps, 3u);
  expect_near(actual.value, expected.value, "value");
  expect_near(actual.second, expected.second, "second moment");
}

TEST(References, SgdFollowsTheHostTrainer) {
  OneParameter actual, expected;
  UpdateDecision decision;
  for (int step = 0; step < 3; ++step) {
    reference::decide_update(actual.arrays(),
                             {.gradient_scale = 1.0f, .clip_norm = 0.0, .beta1 = 0, .beta2 = 0},
                             nullptr, &decision);
    reference::update_sgd(actual.arrays(), {.lr = 0.1f, .momentum = 0.9f, .weight_decay = 0.1f},
                          &decision);
    trainer::sgd_update({.lr = 0.1f, .momentum = 0.9f, .weight_decay = 0.1f, .gradient_scale = 1},
                        expected.gradient, expected.first, expected.value);
  }
  expect_near(actual.value, expected.value, "value");
}

TEST(Decision, ClipsToTheLimitAfterTheScale) {
  const UpdateDecision decision = decide(
      {}, {.gradient_scale = 0.5f, .clip_norm = 2.0, .beta1 = 0.9f, .beta2 = 0.99f}, 64.0, false);
  EXPECT_DOUBLE_EQ(decision.gradient_norm, 4.0);
  EXPECT_FLOAT_EQ(decision.gradient_factor, 0.25f);
  EXPECT_EQ(decision.is_skipped, 0u);
}

TEST(Decision, SkipsWhatIsNotFiniteAndDoesNotCountIt) {
  const DecisionRule rule{.gradient_scale = 1.0f, .clip_norm = 0.0, .beta1 = 0, .beta2 = 0};
  UpdateDecision last;
  last.steps = 4;
  EXPECT_EQ(decide(last, rule, 1.0, false).steps, 5u);
  for (const double bad :
       {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_EQ(decide(last, rule, bad, false).is_skipped, 1u);
    EXPECT_EQ(decide(last, rule, bad, false).steps, 4u);
  }
  EXPECT_EQ(decide(last, rule, 1.0, true).is_skipped, 1u);
}

TEST(Decision, ASkippedUpdateChangesNothing) {
  OneParameter parameter;
  const std::vector<float> before = parameter.value;
  UpdateDecision decision;
  decision.is_skipped = 1;
  reference::update_adamw(parameter.arrays(),
                          {.lr = 1, .beta1 = 0, .beta2 = 0, .epsilon = 1, .weight_decay = 0},
                          &decision);
  EXPECT_EQ(parameter.value, before);
}

}  // namespace
}  // namespace kolo::trainer::cuda
