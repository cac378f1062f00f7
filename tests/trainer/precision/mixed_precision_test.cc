// Compares products of 16-bit operands, and training with them, with float32.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "comm/base/half.h"
#include "tests/trainer/finite_difference.h"
#include "trainer/compute/device.h"
#include "trainer/layers/attention.h"
#include "trainer/layers/images.h"
#include "trainer/layers/linear.h"
#include "trainer/layers/lstm.h"
#include "trainer/layers/transformer_blocks.h"

namespace kolo::trainer {
namespace {

using Values = std::vector<float>;

float rounded(float value, DType dtype) {
  if (dtype == DType::kBFloat16) return to_float(to_bfloat16(value));
  return to_float(to_float16(value));
}

Values rounded(Values values, DType dtype) {
  for (float& value : values) value = rounded(value, dtype);
  return values;
}

double norm(std::span<const float> values) { return std::sqrt(dot(values, values)); }

/// Returns the norm of the difference, relative to the norm of `expected`.
double relative_error(std::span<const float> actual, std::span<const float> expected) {
  EXPECT_EQ(actual.size(), expected.size());
  Values difference;
  for (std::size_t i = 0; i < expected.size(); ++i) difference.push_back(actual[i] - expected[i]);
  return norm(difference) / norm(expected);
}

class MixedPrecisionTest : public testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    if (!can_compute(GetParam())) {
      GTEST_SKIP() << "oneDNN has no " << to_string(GetParam()) << " products on this processor";
    }
  }
};

Values product(DType precision, const Values& a, const Values& b, std::size_t rows,
               std::size_t depth, std::size_t columns) {
  Device device(precision);
  Factor left(device, a.size());
  Factor right(device, b.size());
  left.assign(a);
  right.assign(b);
  Values c(rows * columns);
  device.products().multiply(left.operand(rows, depth), right.operand(depth, columns),
                             {c.data(), rows, columns, columns});
  return c;
}

// Products of two 16-bit numbers are exact in float32, so rounded operands give float32's results
// except for the order of sums.
TEST_P(MixedPrecisionTest, ProductsAreThoseOfRoundedOperands) {
  struct Shape {
    std::size_t rows, depth, columns;
  };
  for (const auto [rows, depth, columns] :
       {Shape{64, 96, 32}, Shape{37, 13, 10}, Shape{1, 1, 1}, Shape{16, 17, 33}}) {
    SCOPED_TRACE(testing::Message() << rows << " " << depth << " " << columns);
    const Values a = random_values(rows * depth, 1);
    const Values b = random_values(depth * columns, 2);
    const Values expected = product(DType::kFloat32, rounded(a, GetParam()), rounded(b, GetParam()),
                                    rows, depth, columns);
    EXPECT_LT(relative_error(product(GetParam(), a, b, rows, depth, columns), expected), 1e-6);
  }
}

// Operands are parts of larger matrices, transposed, with a bias, or added to a result.
TEST_P(MixedPrecisionTest, OperandsMayBePartsOfOthers) {
  constexpr std::size_t kRows = 12, kStride = 24;
  const Values values = rounded(random_values(kRows * kStride, 3), GetParam());
  const Values bias = random_values(7, 4);
  const auto run = [&](DType precision) {
    Device device(precision);
    Factor factor(device, values.size());
    factor.assign(values);
    const Operand a = factor.operand(3, 5, 9, kStride);                // [5, 9]
    const Operand b = factor.operand(2 * kStride + 1, 7, 9, kStride);  // [7, 9]
    Values c(5 * 10, 1.0f), d(5 * 7), e(9 * 9);
    device.products().multiply(a, transposed(b), {c.data(), 5, 7, 10}, Into::kAdd);
    device.products().multiply(a, transposed(b), bias, {d.data(), 5, 7, 7});
    const Operand tall = factor.operand(0, 7, 9, kStride);
    device.products().multiply(transposed(tall), b, {e.data(), 9, 9, 9});
    c.insert(c.end(), d.begin(), d.end());
    c.insert(c.end(), e.begin(), e.end());
    return c;
  };
  const Values expected = run(DType::kFloat32);
  const Values actual = run(GetParam());
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(actual[i], expected[i], 1e-5f) << i;
}

TEST_P(MixedPrecisionTest, AChangedWeightIsUsed) {
  Device device(GetParam());
  ParameterSet parameters(1);
  Linear layer(device, parameters, "fc", {.rows = 2, .inputs = 4, .outputs = 3, .deviation = 1.0f});
  const Values x = random_values(8, 1);
  layer.forward(x, {});
  std::ranges::fill(parameters[0].value(), 0.5f);
  const float sum = rounded(x[0], GetParam()) + rounded(x[1], GetParam()) +
                    rounded(x[2], GetParam()) + rounded(x[3], GetParam());
  EXPECT_NEAR(layer.forward(x, {})[0], 0.5f * sum, 1e-3f);
}

/// Returns the output of a layer for a random input, and the gradients of input and parameters.
std::vector<Values> results_of(Layer& layer, ParameterSet& parameters, std::size_t inputs) {
  parameters.own_gradients();
  const Values x = random_values(inputs, 5);
  const auto y = layer.forward(x, {});
  std::vector<Values> results = {Values(y.begin(), y.end())};
  const auto dx = layer.backward(random_values(y.size(), 6));
  results.emplace_back(dx.begin(), dx.end());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    results.emplace_back(parameters[i].gradient().begin(), parameters[i].gradient().end());
  }
  return results;
}

void expect_close(const std::vector<Values>& actual, const std::vector<Values>& expected,
                  double bound) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_LT(relative_error(actual[i], expected[i]), bound) << i;
  }
  EXPECT_NE(actual[0], expected[0]);
  EXPECT_NE(actual[1], expected[1]);
}

// Operands have relative errors of up to 2^-9 (bfloat16), which propagate through a block's layers.
TEST_P(MixedPrecisionTest, ABlockAndItsGradientsFollowFloat32) {
  const auto run = [](DType precision) {
    Device device(precision);
    ParameterSet parameters(1);
    TransformerBlock layer(device, parameters, "block",
                           {.attention = {.sequences = 2, .length = 24, .width = 32, .heads = 2},
                            .deviation = 0.2f,
                            .residual_deviation = 0.2f});
    return results_of(layer, parameters, 2 * 24 * 32);
  };
  expect_close(run(GetParam()), run(DType::kFloat32), 0.02);
}

// There are several blocks of rows, with weights that are kept or recomputed.
TEST_P(MixedPrecisionTest, AttentionAndItsGradientsFollowFloat32) {
  for (const std::size_t most_kept : {0u, 256u}) {
    const auto run = [most_kept](DType precision) {
      Device device(precision);
      ParameterSet none(1);
      SelfAttention layer(
          device, {.sequences = 2, .length = 100, .width = 16, .heads = 2, .most_kept = most_kept});
      return results_of(layer, none, 2 * 100 * 3 * 16);
    };
    expect_close(run(GetParam()), run(DType::kFloat32), 0.01);
  }
}

TEST_P(MixedPrecisionTest, AConvolutionAndItsGradientsFollowFloat32) {
  for (const std::size_t channels : {1u, 3u, 16u}) {
    SCOPED_TRACE(channels);
    const auto run = [channels](DType precision) {
      Device device(precision);
      ParameterSet parameters(1);
      Conv2d layer(device, parameters, "conv",
                   {.images = 3,
                    .height = 9,
                    .width = 8,
                    .input_channels = channels,
                    .output_channels = 24,
                    .kernel = 3,
                    .padding = 1,
                    .deviation = 0.3f});
      return results_of(layer, parameters, 3 * 9 * 8 * channels);
    };
    expect_close(run(GetParam()), run(DType::kFloat32), 0.01);
  }
}

TEST_P(MixedPrecisionTest, AnLstmAndItsGradientsFollowFloat32) {
  PackedSequences sequences(4, 9);
  sequences.assign(std::vector<std::int32_t>{9, 2, 0, 7});
  const auto run = [&](DType precision) {
    Device device(precision);
    ParameterSet parameters(1);
    Lstm layer(device, parameters, "lstm", sequences,
               {.inputs = 24, .width = 32, .deviation = 0.2f});
    return results_of(layer, parameters, sequences.rows() * 24);
  };
  expect_close(run(GetParam()), run(DType::kFloat32), 0.02);
}

INSTANTIATE_TEST_SUITE_P(Dtypes, MixedPrecisionTest,
                         testing::Values(DType::kBFloat16, DType::kFloat16),
                         [](const auto& tested) { return std::string(to_string(tested.param)); });

TEST(Float16Test, ValuesBeyondItsRangeAreInfinite) {
  const Values result = product(DType::kFloat16, {65504.0f, 70000.0f}, {1.0f}, 2, 1, 1);
  EXPECT_EQ(result[0], 65504.0f);
  EXPECT_TRUE(std::isinf(result[1]));
  EXPECT_EQ(product(DType::kFloat16, {1.0f}, {1e-8f}, 1, 1, 1)[0], 0.0f);
}

}  // namespace
}  // namespace kolo::trainer
