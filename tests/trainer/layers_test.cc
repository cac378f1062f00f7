#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "comm/base/error.h"
#include "tests/trainer/finite_difference.h"
#include "trainer/compute/device.h"
#include "trainer/layers/conv2d.h"
#include "trainer/layers/embedding.h"
#include "trainer/layers/gelu.h"
#include "trainer/layers/layer_norm.h"
#include "trainer/layers/linear.h"
#include "trainer/layers/max_pool.h"
#include "trainer/layers/relu.h"
#include "trainer/layers/self_attention.h"
#include "trainer/layers/transformer_block.h"

namespace kolo::trainer {
namespace {

TEST(LinearTest, ComputesProductAndBias) {
  Device device;
  ParameterSet parameters(1);
  Linear layer(device, parameters, "fc", {.rows = 2, .inputs = 2, .outputs = 1, .deviation = 0.0f});
  parameters[0].value()[0] = 2.0f;
  parameters[0].value()[1] = 3.0f;
  parameters[1].value()[0] = 10.0f;
  const std::vector<float> input = {1.0f, 1.0f, 0.0f, -1.0f};
  const auto output = layer.forward(input, {});
  EXPECT_EQ(std::vector<float>(output.begin(), output.end()), (std::vector<float>{15.0f, 7.0f}));
}

TEST(LinearTest, GradientsMatchDifferences) {
  Device device;
  ParameterSet parameters(1);
  Linear layer(device, parameters, "fc",
               {.rows = 7, .inputs = 13, .outputs = 5, .deviation = 0.3f});
  check_layer(layer, parameters, random_values(7 * 13, 1));
}

TEST(LinearTest, FirstLayerReturnsNoInputGradient) {
  Device device;
  ParameterSet parameters(1);
  Linear layer(device, parameters, "fc",
               {.rows = 3, .inputs = 4, .outputs = 5, .deviation = 0.3f, .input_gradient = false});
  check_layer(layer, parameters, random_values(12, 1), false);
}

TEST(ReluTest, GradientsMatchDifferences) {
  ParameterSet none(1);
  Relu layer(37);
  std::vector<float> input = random_values(37, 2);
  for (float& x : input) x += x > 0.0f ? 0.1f : -0.1f;  // away from the kink
  check_layer(layer, none, input);
}

TEST(GeluTest, GradientsMatchDifferences) {
  ParameterSet none(1);
  Gelu layer(37);
  std::vector<float> input = random_values(37, 3);
  for (float& x : input) x *= 4.0f;
  check_layer(layer, none, input);
}

TEST(GeluTest, HasItsLimitsFarOut) {
  Gelu layer(4);
  const std::vector<float> input = {-1e4f, -20.0f, 20.0f, 1e4f};
  const auto output = layer.forward(input, {});
  EXPECT_NEAR(output[0], 0.0f, 1e-6f);
  EXPECT_NEAR(output[1], 0.0f, 1e-6f);
  EXPECT_EQ(output[2], 20.0f);
  EXPECT_EQ(output[3], 1e4f);
}

TEST(LayerNormTest, GradientsMatchDifferences) {
  ParameterSet parameters(1);
  LayerNorm layer(parameters, "norm", 5, 19);
  parameters[0].value()[3] = 1.5f;
  check_layer(layer, parameters, random_values(5 * 19, 4));
}

TEST(SelfAttentionTest, GradientsMatchDifferences) {
  Device device;
  ParameterSet none(1);
  SelfAttention layer(device, {.sequences = 2, .length = 11, .width = 12, .heads = 3});
  check_layer(layer, none, random_values(2 * 11 * 36, 5));
}

/// One head, position by position, in float64.
std::vector<float> plain_attention(const std::vector<float>& input, std::size_t length,
                                   std::size_t width) {
  std::vector<float> output(length * width);
  const auto at = [&](std::size_t row, std::size_t part, std::size_t column) {
    return double{input[(row * 3 + part) * width + column]};
  };
  for (std::size_t i = 0; i < length; ++i) {
    std::vector<double> weights;
    double sum = 0;
    for (std::size_t j = 0; j <= i; ++j) {
      double score = 0;
      for (std::size_t c = 0; c < width; ++c) score += at(i, 0, c) * at(j, 1, c);
      weights.push_back(std::exp(score / std::sqrt(static_cast<double>(width))));
      sum += weights.back();
    }
    for (std::size_t c = 0; c < width; ++c) {
      double value = 0;
      for (std::size_t j = 0; j <= i; ++j) value += weights[j] / sum * at(j, 2, c);
      output[i * width + c] = static_cast<float>(value);
    }
  }
  return output;
}

// Several blocks of rows, the last one whole or not. Bound: sums of up to 200 terms near 1 in fp32.
TEST(SelfAttentionTest, BlocksOfRowsGiveWhatTheFormulaGives) {
  Device device;
  constexpr std::size_t kBlock = SelfAttention::kBlockRows;
  for (const std::size_t length :
       {std::size_t{1}, kBlock - 1, kBlock, kBlock + 1, 3 * kBlock + 5}) {
    SCOPED_TRACE(length);
    SelfAttention layer(device, {.sequences = 1, .length = length, .width = 4, .heads = 1});
    const std::vector<float> input = random_values(length * 12, 8);
    const auto output = layer.forward(input, {});
    const std::vector<float> expected = plain_attention(input, length, 4);
    for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(output[i], expected[i], 2e-5f);
  }
}

TEST(SelfAttentionTest, GradientsOfSeveralBlocksMatchDifferences) {
  Device device;
  constexpr std::size_t kLength = SelfAttention::kBlockRows + 3;
  ParameterSet none(1);
  SelfAttention layer(device,
                      {.sequences = 1, .length = kLength, .width = 2, .heads = 1, .most_kept = 0});
  check_layer(layer, none, random_values(kLength * 6, 9));
}

// Weights that are computed again are the same bits as those that are kept.
TEST(SelfAttentionTest, KeptWeightsChangeNoBit) {
  Device device;
  constexpr std::size_t kLength = 2 * SelfAttention::kBlockRows + 3;
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

TEST(TransformerBlockTest, GradientsMatchDifferences) {
  Device device;
  ParameterSet parameters(1);
  TransformerBlock layer(device, parameters, "block",
                         {.attention = {.sequences = 2, .length = 5, .width = 8, .heads = 2},
                          .deviation = 0.2f,
                          .residual_deviation = 0.2f});
  check_layer(layer, parameters, random_values(2 * 5 * 8, 8));
}

TEST(Conv2dTest, GradientsMatchDifferences) {
  Device device;
  for (const std::size_t channels : {1u, 3u, 8u}) {
    SCOPED_TRACE(channels);
    ParameterSet parameters(1);
    Conv2d layer(device, parameters, "conv",
                 {.images = 2,
                  .height = 7,
                  .width = 6,
                  .input_channels = channels,
                  .output_channels = 8,
                  .kernel = 3,
                  .deviation = 0.2f});
    check_layer(layer, parameters, random_values(2 * 7 * 6 * channels, 9));
  }
}

TEST(Conv2dTest, PaddingKeepsTheSizeAndItsGradientsMatchDifferences) {
  Device device;
  ParameterSet parameters(1);
  Conv2d layer(device, parameters, "conv",
               {.images = 2,
                .height = 5,
                .width = 4,
                .input_channels = 3,
                .output_channels = 8,
                .kernel = 3,
                .padding = 1,
                .deviation = 0.2f});
  EXPECT_EQ(layer.forward(random_values(2 * 5 * 4 * 3, 9), {}).size(), 2u * 5 * 4 * 8);
  check_layer(layer, parameters, random_values(2 * 5 * 4 * 3, 9));
}

TEST(Conv2dTest, RefusesImagesSmallerThanItsKernel) {
  Device device;
  ParameterSet parameters(1);
  EXPECT_THROW(Conv2d(device, parameters, "conv",
                      {.images = 1,
                       .height = 4,
                       .width = 9,
                       .input_channels = 1,
                       .output_channels = 1,
                       .kernel = 5,
                       .deviation = 0.1f}),
               UsageError);
}

TEST(MaxPoolTest, TakesTheLargestOfEachWindowAndSendsItTheGradient) {
  Device device;
  MaxPool layer(device, {.images = 1, .height = 3, .width = 4, .channels = 1});
  const std::vector<float> input = {1, 2, 3, 4,  //
                                    5, 0, 9, 1,  //
                                    7, 7, 7, 7};
  const auto output = layer.forward(input, {});
  EXPECT_EQ(std::vector<float>(output.begin(), output.end()), (std::vector<float>{5, 9}));
  const auto gradient = layer.backward(std::vector<float>{10, 20});
  EXPECT_EQ(std::vector<float>(gradient.begin(), gradient.end()),
            (std::vector<float>{0, 0, 0, 0, 10, 0, 20, 0, 0, 0, 0, 0}));
}

TEST(EmbeddingTest, AddsRowsAndCollectsTheirGradients) {
  ParameterSet parameters(1);
  Embedding layer(parameters, "embedding",
                  {.sequences = 2, .length = 2, .tokens = 300, .width = 3, .deviation = 0.5f});
  parameters.own_gradients();
  const std::vector<std::int32_t> ids = {7, 299, 7, 0};
  const auto output = layer.forward(ids);
  EXPECT_EQ(output[3], parameters[0].value()[299 * 3] + parameters[1].value()[3]);

  parameters[0].gradient()[5] = 100.0f;  // of a step before
  layer.backward(std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  EXPECT_EQ(parameters[0].gradient()[7 * 3], 8.0f);
  EXPECT_EQ(parameters[0].gradient()[299 * 3 + 1], 5.0f);
  EXPECT_EQ(parameters[0].gradient()[2], 12.0f);
  EXPECT_EQ(parameters[0].gradient()[5], 0.0f);
  EXPECT_EQ(parameters[1].gradient()[0], 8.0f);   // positions 0: 1 + 7
  EXPECT_EQ(parameters[1].gradient()[5], 18.0f);  // positions 1: 6 + 12
}

// The output layer of a language model multiplies by the table of its embedding.
TEST(EmbeddingTest, ASharedTableTakesBothContributionsInEitherOrder) {
  Device device;
  for (const bool output_first : {true, false}) {
    ParameterSet parameters(1);
    Embedding embedding(parameters, "embedding",
                        {.sequences = 1, .length = 1, .tokens = 2, .width = 1, .deviation = 0.5f});
    Linear output(device, embedding.token(), 1);
    parameters.own_gradients();
    int reports = 0;
    parameters.on_gradient_ready([&](std::size_t index) { reports += index == 0; });
    const std::vector<std::int32_t> ids = {1};
    embedding.forward(ids);
    const std::vector<float> input = {3.0f};
    output.forward(input, {});
    const std::vector<float> output_gradient = {1.0f, 10.0f};
    const std::vector<float> embedded_gradient = {100.0f};
    if (output_first) output.backward(output_gradient);
    embedding.backward(embedded_gradient);
    EXPECT_EQ(reports, output_first ? 1 : 0);
    if (!output_first) output.backward(output_gradient);
    EXPECT_EQ(reports, 1);
    EXPECT_EQ(parameters[0].gradient()[0], 3.0f);
    EXPECT_EQ(parameters[0].gradient()[1], 130.0f);
  }
}

}  // namespace
}  // namespace kolo::trainer
