#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "comm/base/error.h"
#include "tests/trainer/finite_difference.h"
#include "trainer/compute/device.h"
#include "trainer/layers/attention.h"

namespace kolo::trainer {
namespace {

TEST(SelfAttentionTest, GradientsMatchDifferences) {
  Device device;
  ParameterSet none(1);
  SelfAttention layer(device, {.sequences = 2, .length = 11, .width = 12, .heads = 3});
  check_layer(layer, none, random_values(2 * 11 * 36, 5));
}

constexpr std::size_t kBlock = SelfAttention::kBlockRows;

/// Computes one head of one sequence, position by position, in float64. If `is_causal`, a position
/// sees only itself and earlier positions; otherwise it sees all.
std::vector<float> plain_attention(std::span<const float> input, std::size_t length,
                                   std::size_t width, bool is_causal) {
  std::vector<float> output(length * width);
  const auto at = [&](std::size_t row, std::size_t part, std::size_t column) {
    return double{input[(row * 3 + part) * width + column]};
  };
  for (std::size_t i = 0; i < length; ++i) {
    std::vector<double> weights;
    double sum = 0;
    for (std::size_t j = 0; j < (is_causal ? i + 1 : length); ++j) {
      double score = 0;
      for (std::size_t c = 0; c < width; ++c) score += at(i, 0, c) * at(j, 1, c);
      weights.push_back(std::exp(score / std::sqrt(static_cast<double>(width))));
      sum += weights.back();
    }
    for (std::size_t c = 0; c < width; ++c) {
      double value = 0;
      for (std::size_t j = 0; j < weights.size(); ++j) value += weights[j] / sum * at(j, 2, c);
      output[i * width + c] = static_cast<float>(value);
    }
  }
  return output;
}

// Tests several blocks of rows, the last full or not. Bound: float32 sums of up to 200 terms near
// 1.
TEST(SelfAttentionTest, BlocksOfRowsGiveWhatTheFormulaGives) {
  Device device;
  for (const std::size_t length :
       {std::size_t{1}, kBlock - 1, kBlock, kBlock + 1, 3 * kBlock + 5}) {
    SCOPED_TRACE(length);
    SelfAttention layer(device, {.sequences = 1, .length = length, .width = 4, .heads = 1});
    const std::vector<float> input = random_values(length * 12, 8);
    const auto output = layer.forward(input, {});
    const std::vector<float> expected = plain_attention(input, length, 4, true);
    for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(output[i], expected[i], 2e-5f);
  }
}

TEST(SelfAttentionTest, GradientsOfSeveralBlocksMatchDifferences) {
  Device device;
  constexpr std::size_t kLength = kBlock + 3;
  ParameterSet none(1);
  SelfAttention layer(device,
                      {.sequences = 1, .length = kLength, .width = 2, .heads = 1, .most_kept = 0});
  check_layer(layer, none, random_values(kLength * 6, 9));
}

// Recomputed weights have the same bits as kept weights.
TEST(SelfAttentionTest, KeptWeightsChangeNoBit) {
  Device device;
  constexpr std::size_t kLength = 2 * kBlock + 3;
  const std::vector<float> input = random_values(2 * kLength * 24, 10);
  const std::vector<float> gradient = random_values(2 * kLength * 8, 11);
  const auto gradients = [&](std::size_t most_kept) {
    SelfAttention layer(
        device,
        {.sequences = 2, .length = kLength, .width = 8, .heads = 2, .most_kept = most_kept});
    layer.forward(input, {});
    const auto of_input = layer.backward(gradient);
    return std::vector<float>(of_input.begin(), of_input.end());
  };
  EXPECT_EQ(gradients(0), gradients(kLength));
}

TEST(SelfAttentionTest, LaterPositionsHaveNoInfluence) {
  Device device;
  SelfAttention layer(device, {.sequences = 1, .length = 9, .width = 8, .heads = 2});
  std::vector<float> input = random_values(9 * 24, 6);
  const auto before = layer.forward(input, {});
  const std::vector<float> first(before.begin(), before.begin() + 5 * 8);
  for (std::size_t i = 5 * 24; i < input.size(); ++i) input[i] += 1.0f;
  const auto after = layer.forward(input, {});
  EXPECT_EQ(first, std::vector<float>(after.begin(), after.begin() + 5 * 8));
}

// The test covers kept weights, and two blocks of rows whose weights are recomputed.
TEST(SelfAttentionTest, GradientsWithDropoutMatchDifferences) {
  Device device;
  ParameterSet none(1);
  const DropoutMask::Options dropout{.share = 0.3f, .seed = 2, .layer = 1};
  SelfAttention small(device,
                      {.sequences = 2, .length = 11, .width = 12, .heads = 3, .dropout = dropout});
  check_layer(small, none, random_values(2 * 11 * 36, 5));
  constexpr std::size_t kLength = kBlock + 3;
  SelfAttention large(device, {.sequences = 1,
                               .length = kLength,
                               .width = 2,
                               .heads = 1,
                               .most_kept = 0,
                               .dropout = dropout});
  check_layer(large, none, random_values(kLength * 6, 9));
}

// With equal scores and values of 1, each output is the share of kept weights, divided by 0.75. For
// 2 · 3 · 200 · 201 / 2 weights, five deviations are 5 sqrt(0.25 / 0.75 / 120600) of the mean. Rows
// have different weights, but equal ones in all samples and heads.
TEST(SelfAttentionTest, DropsOtherWeightsInEachHeadAndSampleAndNoneInEvaluation) {
  Device device;
  constexpr std::size_t kLength = 200;
  SelfAttention layer(device, {.sequences = 2,
                               .length = kLength,
                               .width = 3,
                               .heads = 3,
                               .dropout = {.share = 0.25f, .seed = 1}});
  const std::vector<float> input(2 * kLength * 9, 1.0f);
  const auto y = layer.forward(input, {});
  double last_rows = 0.0;  // with 200 equal weights each
  for (const std::size_t sample : {0, 1}) {
    for (std::size_t head = 0; head < 3; ++head) {
      last_rows += y[(sample * kLength + kLength - 1) * 3 + head];
    }
  }
  EXPECT_NEAR(last_rows / 6, 1.0, 5 * std::sqrt(0.25 / 0.75 / 1200));
  EXPECT_NE(y[kLength * 3 - 1], y[kLength * 3 - 2]);
  EXPECT_NE(y[kLength * 3 - 1], y[2 * kLength * 3 - 1]);
  for (const float value : layer.forward(input, {.is_training = false})) {
    ASSERT_NEAR(value, 1.0f, 1e-5f);
  }
}

constexpr SelfAttention::Options kRotated{.sequences = 2, .length = 7, .width = 8, .heads = 2};

TEST(RotaryPositionsTest, GradientsMatchDifferences) {
  ParameterSet none(1);
  RotaryPositions layer(kRotated);
  check_layer(layer, none, random_values(2 * 7 * 24, 5));
}

// There is one head of two pairs. At position 3, its angles are 3 and 3 / 10000^(1/2). Bound: one
// rounding of each factor and of each sum.
TEST(RotaryPositionsTest, TurnsQueriesAndKeysByTheirPositionAndLeavesValues) {
  RotaryPositions layer({.sequences = 1, .length = 4, .width = 4, .heads = 1});
  const std::vector<float> x = random_values(4 * 12, 3);
  const auto y = layer.forward(x, {});
  for (std::size_t i = 0; i < 12; ++i) EXPECT_EQ(y[i], x[i]);  // position 0
  const std::size_t row = 3 * 12;
  for (const std::size_t part : {0, 4}) {
    for (const std::size_t pair : {0, 1}) {
      const double angle = pair == 0 ? 3.0 : 0.03;
      const double a = x[row + part + pair], b = x[row + part + pair + 2];
      EXPECT_NEAR(y[row + part + pair], a * std::cos(angle) - b * std::sin(angle), 4e-7);
      EXPECT_NEAR(y[row + part + pair + 2], a * std::sin(angle) + b * std::cos(angle), 4e-7);
    }
  }
  for (std::size_t i = 8; i < 12; ++i) EXPECT_EQ(y[row + i], x[row + i]);
}

TEST(RotaryPositionsTest, RefusesHeadsOfAnOddWidth) {
  EXPECT_THROW(RotaryPositions({.sequences = 1, .length = 4, .width = 6, .heads = 2}), UsageError);
}

// Later chunks use the keys and values of earlier ones. Bound: as above; sums are reordered.
TEST(SelfAttentionTest, ChunksGiveWhatOnePassGives) {
  Device device;
  constexpr std::size_t kLength = kBlock + 20;
  const std::vector<float> input = random_values(kLength * 24, 8);
  SelfAttention whole(device, {.sequences = 1, .length = kLength, .width = 8, .heads = 2});
  const auto expected = whole.forward(input, {.is_training = false});
  SelfAttention parts(device,
                      {.sequences = 1, .length = kLength, .width = 8, .heads = 2, .chunk = 70});
  std::size_t past = 0;
  for (const std::size_t rows : {3u, 1u, 70u, 10u}) {
    const auto part = std::span(input).subspan(past * 24, rows * 24);
    const auto y = parts.forward(part, {.is_training = false, .past = past});
    ASSERT_EQ(y.size(), rows * 8);
    for (std::size_t i = 0; i < y.size(); ++i) {
      ASSERT_NEAR(y[i], expected[past * 8 + i], 2e-5f) << past << " " << i;
    }
    past += rows;
  }
  EXPECT_EQ(past, kLength);
  const auto beyond = std::span(input).first(24);
  EXPECT_THROW(parts.forward(beyond, {.is_training = false, .past = kLength}), UsageError);
}

// There are several blocks of rows, full or not, and a sequence without positions. Bound: float32
// sums of up to 200 terms near 1.
TEST(LengthsTest, BlocksOfRowsGiveWhatTheFormulaGives) {
  Device device;
  constexpr std::size_t kLength = 3 * kBlock + 5;
  constexpr std::size_t kWidth = 4;
  const std::vector<std::int32_t> lengths = {1, kBlock - 1, kBlock, kBlock + 1, kLength, 0};
  const std::size_t sequences = lengths.size();
  SelfAttention layer(device, {.sequences = sequences,
                               .length = kLength,
                               .width = kWidth,
                               .heads = 1,
                               .mask = SelfAttention::Mask::kLengths});
  const std::vector<float> input = random_values(sequences * kLength * 3 * kWidth, 8);
  layer.set_lengths(lengths);
  const auto output = layer.forward(input, {});
  for (std::size_t s = 0; s < sequences; ++s) {
    SCOPED_TRACE(lengths[s]);
    const std::size_t row = s * kLength;
    auto expected = plain_attention(std::span(input).subspan(row * 3 * kWidth),
                                    static_cast<std::size_t>(lengths[s]), kWidth, false);
    expected.resize(kLength * kWidth);  // padding is zero
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(output[row * kWidth + i], expected[i], 2e-5f);
    }
  }
}

TEST(LengthsTest, GradientsMatchDifferences) {
  Device device;
  for (const std::size_t most_kept : {0u, 256u}) {
    for (const std::size_t length : {std::size_t{11}, kBlock + 3}) {
      SCOPED_TRACE(length);
      ParameterSet none(1);
      SelfAttention layer(device, {.sequences = 3,
                                   .length = length,
                                   .width = 4,
                                   .heads = 2,
                                   .most_kept = most_kept,
                                   .mask = SelfAttention::Mask::kLengths});
      const std::vector<std::int32_t> lengths = {static_cast<std::int32_t>(length), 7, 0};
      layer.set_lengths(lengths);
      check_layer(layer, none, random_values(3 * length * 12, 9));
    }
  }
}

TEST(LengthsTest, PaddingHasNoInfluenceAndNoGradient) {
  Device device;
  SelfAttention layer(
      device,
      {.sequences = 1, .length = 9, .width = 8, .heads = 2, .mask = SelfAttention::Mask::kLengths});
  const std::vector<std::int32_t> lengths = {5};
  std::vector<float> input = random_values(9 * 24, 6);
  layer.set_lengths(lengths);
  const auto before = layer.forward(input, {});
  const std::vector<float> first(before.begin(), before.end());
  for (std::size_t i = 5 * 24; i < input.size(); ++i) input[i] += 1.0f;
  const auto after = layer.forward(input, {});
  EXPECT_EQ(first, std::vector<float>(after.begin(), after.end()));
  const auto gradient = layer.backward(random_values(9 * 8, 7));
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    EXPECT_EQ(gradient[i] == 0.0f, i >= 5 * 24) << i;
  }
}

TEST(LengthsTest, AreNeeded) {
  Device device;
  SelfAttention layer(
      device,
      {.sequences = 2, .length = 2, .width = 2, .heads = 1, .mask = SelfAttention::Mask::kLengths});
  EXPECT_THROW(layer.forward(random_values(24, 6), {}), UsageError);
  EXPECT_THROW(layer.set_lengths(std::vector<std::int32_t>{1}), UsageError);
}

}  // namespace
}  // namespace kolo::trainer
