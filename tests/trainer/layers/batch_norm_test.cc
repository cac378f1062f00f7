#include "trainer/layers/normalization.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/trainer/finite_difference.h"

namespace kolo::trainer {
namespace {

std::vector<float> copy_of(std::span<const float> values) { return {values.begin(), values.end()}; }

TEST(BatchNormTest, GradientsMatchDifferences) {
  ParameterSet parameters(1);
  BatchNorm layer(parameters, "norm", {.samples = 5, .rows_per_sample = 3, .channels = 19});
  parameters[0].value()[3] = 1.5f;
  check_layer(layer, parameters, random_values(5 * 3 * 19, 4));
}

TEST(BatchNormTest, NormalizesColumnsFarFromZero) {
  // Two columns have 300 rows around 1000 and -50. Bound: float32 represents 1000 to 6e-5, a tenth
  // of the deviation's 1e-3.
  constexpr std::size_t kRows = 300;
  ParameterSet parameters(1);
  BatchNorm layer(parameters, "norm", {.samples = kRows, .rows_per_sample = 1, .channels = 2});
  std::vector<float> x = random_values(2 * kRows, 3);
  for (std::size_t i = 0; i < kRows; ++i) {
    x[2 * i] += 1000.0f;
    x[2 * i + 1] -= 50.0f;
  }
  const std::vector<float> y = copy_of(layer.forward(x, {}));
  for (const std::size_t column : {0u, 1u}) {
    double sum = 0.0;
    double squares = 0.0;
    for (std::size_t i = 0; i < kRows; ++i) {
      sum += y[2 * i + column];
      squares += double{y[2 * i + column]} * y[2 * i + column];
    }
    EXPECT_NEAR(sum / kRows, 0.0, 1e-3);
    EXPECT_NEAR(squares / kRows, 1.0, 1e-3);
  }
}

// PyTorch's nn.BatchNorm1d(1) gives these values for 1, 2, 6 and then in evaluation.
TEST(BatchNormTest, EvaluationTakesRunningStatistics) {
  ParameterSet parameters(1);
  BatchNorm layer(parameters, "norm", {.samples = 3, .rows_per_sample = 1, .channels = 1});
  const std::vector<float> x = {1.0f, 2.0f, 6.0f};
  layer.forward(x, {});
  EXPECT_FLOAT_EQ(parameters.buffers()[0].value.span()[0], 0.3f);  // 0.1 · 3
  EXPECT_FLOAT_EQ(parameters.buffers()[1].value.span()[0], 1.6f);  // 0.9 + 0.1 · 7
  const auto y = layer.forward(x, {.is_training = false});
  EXPECT_NEAR(y[2], (6.0 - 0.3) / std::sqrt(1.6 + 1e-5), 1e-6);
  EXPECT_FLOAT_EQ(parameters.buffers()[0].value.span()[0], 0.3f);
}

TEST(BatchNormTest, PaddingDoesNotCount) {
  ParameterSet parameters(1);
  ParameterSet exact_parameters(1);
  BatchNorm layer(parameters, "norm", {.samples = 4, .rows_per_sample = 2, .channels = 3});
  BatchNorm exact(exact_parameters, "norm", {.samples = 3, .rows_per_sample = 2, .channels = 3});
  parameters.own_gradients();
  exact_parameters.own_gradients();
  std::vector<float> x = random_values(4 * 2 * 3, 5);
  const std::vector<float> real(x.begin(), x.begin() + 18);
  const std::vector<float> dy = random_values(24, 6);
  const std::vector<float> expected = copy_of(exact.forward(real, {}));
  const std::vector<float> y = copy_of(layer.forward(x, {.samples = 3}));
  EXPECT_EQ(std::vector<float>(y.begin(), y.begin() + 18), expected);
  const std::vector<float> expected_dx = copy_of(exact.backward(std::span(dy).first(18)));
  const std::vector<float> dx = copy_of(layer.backward(dy));
  EXPECT_EQ(std::vector<float>(dx.begin(), dx.begin() + 18), expected_dx);
  EXPECT_EQ(std::vector<float>(dx.begin() + 18, dx.end()), std::vector<float>(6));
  EXPECT_EQ(copy_of(parameters[0].gradient()), copy_of(exact_parameters[0].gradient()));
  EXPECT_EQ(parameters.hash(), exact_parameters.hash());  // includes running statistics
}

TEST(BatchNormTest, ABatchOfPaddingChangesNothing) {
  ParameterSet parameters(1);
  BatchNorm layer(parameters, "norm", {.samples = 2, .rows_per_sample = 1, .channels = 2});
  parameters.own_gradients();
  const std::uint64_t before = parameters.hash();
  for (const float y : layer.forward(std::vector<float>(4), {.samples = 0})) {
    EXPECT_TRUE(std::isfinite(y));
  }
  EXPECT_EQ(copy_of(layer.backward(std::vector<float>(4))), std::vector<float>(4));
  EXPECT_EQ(copy_of(parameters[0].gradient()), std::vector<float>(2));
  EXPECT_EQ(parameters.hash(), before);
}

// The step is skipped, but what is mixed into running values would stay.
TEST(BatchNormTest, AnOverflowLeavesTheRunningValuesOfItsChannel) {
  ParameterSet parameters(1);
  BatchNorm layer(parameters, "norm", {.samples = 3, .rows_per_sample = 1, .channels = 3});
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float none = std::numeric_limits<float>::quiet_NaN();
  layer.forward(std::vector<float>{kInfinity, 1, 4, 2, 2, none, 3, 6, 4}, {.samples = 3});
  const std::vector<float> mean = copy_of(parameters.buffers()[0].value.span());
  const std::vector<float> variance = copy_of(parameters.buffers()[1].value.span());
  EXPECT_EQ(mean, (std::vector<float>{0, 0.3f, 0}));
  EXPECT_EQ(variance[0], 1.0f);
  EXPECT_FLOAT_EQ(variance[1], 0.9f + 0.1f * 7);
  EXPECT_EQ(variance[2], 1.0f);
}

}  // namespace
}  // namespace kolo::trainer
