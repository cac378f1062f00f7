// The layers of an encoder that reads in both directions.

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "comm/base/error.h"
#include "tests/trainer/finite_difference.h"
#include "trainer/compute/device.h"
#include "trainer/layers/attention.h"
#include "trainer/layers/elementwise.h"
#include "trainer/layers/tables.h"
#include "trainer/layers/transformer_blocks.h"

namespace kolo::trainer {
namespace {

constexpr SelfAttention::Mask kLengths = SelfAttention::Mask::kLengths;
constexpr std::size_t kBlock = SelfAttention::kBlockRows;

TEST(TanhTest, GradientsMatchDifferences) {
  ParameterSet none(1);
  Tanh layer(37);
  check_layer(layer, none, random_values(37, 3));
  const std::vector<float> far(37, -1e4f);
  EXPECT_EQ(layer.forward(far, {})[36], -1.0f);
}

TEST(RowSelectionTest, TakesRowsAndCollectsTheirGradients) {
  RowSelection layer({.sequences = 2, .length = 3, .taken = 2, .width = 1});
  const std::vector<float> input = {1, 2, 3, 4, 5, 6};
  const std::vector<std::int32_t> positions = {2, 1, 0, 0};
  layer.set_positions(positions);
  const auto output = layer.forward(input, {});
  EXPECT_EQ(std::vector<float>(output.begin(), output.end()), (std::vector<float>{3, 2, 4, 4}));
  const auto gradient = layer.backward(std::vector<float>{10, 20, 30, 40});
  EXPECT_EQ(std::vector<float>(gradient.begin(), gradient.end()),
            (std::vector<float>{0, 20, 10, 70, 0, 0}));
  EXPECT_THROW(layer.set_positions(std::vector<std::int32_t>{1}), UsageError);
}

TEST(RowSelectionTest, TakesFirstRowsUnlessTold) {
  RowSelection layer({.sequences = 2, .length = 2, .taken = 1, .width = 2});
  const std::vector<float> input = {1, 2, 3, 4, 5, 6, 7, 8};
  const auto output = layer.forward(input, {});
  EXPECT_EQ(std::vector<float>(output.begin(), output.end()), (std::vector<float>{1, 2, 5, 6}));
}

/// One head of one sequence of `seen` positions, in float64.
std::vector<float> plain_attention(std::span<const float> input, std::size_t seen,
                                   std::size_t width) {
  std::vector<float> output(seen * width);
  const auto at = [&](std::size_t row, std::size_t part, std::size_t column) {
    return double{input[(row * 3 + part) * width + column]};
  };
  for (std::size_t i = 0; i < seen; ++i) {
    std::vector<double> weights(seen);
    double sum = 0;
    for (std::size_t j = 0; j < seen; ++j) {
      double score = 0;
      for (std::size_t c = 0; c < width; ++c) score += at(i, 0, c) * at(j, 1, c);
      weights[j] = std::exp(score / std::sqrt(static_cast<double>(width)));
      sum += weights[j];
    }
    for (std::size_t c = 0; c < width; ++c) {
      double value = 0;
      for (std::size_t j = 0; j < seen; ++j) value += weights[j] / sum * at(j, 2, c);
      output[i * width + c] = static_cast<float>(value);
    }
  }
  return output;
}

// Several blocks of rows, whole or not, and a sequence without positions. Bound: sums of up to 200
// terms near 1 in fp32.
TEST(LengthsTest, BlocksOfRowsGiveWhatTheFormulaGives) {
  Device device;
  constexpr std::size_t kLength = 3 * kBlock + 5;
  constexpr std::size_t kWidth = 4;
  const std::vector<std::int32_t> lengths = {1, kBlock - 1, kBlock, kBlock + 1, kLength, 0};
  const std::size_t sequences = lengths.size();
  SelfAttention layer(
      device,
      {.sequences = sequences, .length = kLength, .width = kWidth, .heads = 1, .mask = kLengths});
  const std::vector<float> input = random_values(sequences * kLength * 3 * kWidth, 8);
  layer.set_lengths(lengths);
  const auto output = layer.forward(input, {});
  for (std::size_t s = 0; s < sequences; ++s) {
    SCOPED_TRACE(lengths[s]);
    const std::size_t row = s * kLength;
    auto expected = plain_attention(std::span(input).subspan(row * 3 * kWidth),
                                    static_cast<std::size_t>(lengths[s]), kWidth);
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
                                   .mask = kLengths});
      const std::vector<std::int32_t> lengths = {static_cast<std::int32_t>(length), 7, 0};
      layer.set_lengths(lengths);
      check_layer(layer, none, random_values(3 * length * 12, 9));
    }
  }
}

TEST(LengthsTest, PaddingHasNoInfluenceAndNoGradient) {
  Device device;
  SelfAttention layer(device,
                      {.sequences = 1, .length = 9, .width = 8, .heads = 2, .mask = kLengths});
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
  SelfAttention layer(device,
                      {.sequences = 2, .length = 2, .width = 2, .heads = 1, .mask = kLengths});
  EXPECT_THROW(layer.forward(random_values(24, 6), {}), UsageError);
  EXPECT_THROW(layer.set_lengths(std::vector<std::int32_t>{1}), UsageError);
}

TEST(EncoderBlockTest, GradientsMatchDifferences) {
  Device device;
  for (const float dropout : {0.0f, 0.3f}) {
    ParameterSet parameters(1);
    EncoderBlock layer(device, parameters, "block",
                       {.sequences = 2,
                        .length = 5,
                        .width = 8,
                        .heads = 2,
                        .deviation = 0.2f,
                        .dropout = dropout,
                        .seed = 3,
                        .first_dropout = 1});
    const std::vector<std::int32_t> lengths = {5, 3};
    layer.set_lengths(lengths);
    check_layer(layer, parameters, random_values(2 * 5 * 8, 8));
  }
}

}  // namespace
}  // namespace kolo::trainer
