#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include "comm/base/error.h"
#include "tests/trainer/finite_difference.h"
#include "trainer/compute/device.h"
#include "trainer/kernels/kernels.h"
#include "trainer/layers/attention.h"
#include "trainer/layers/elementwise.h"
#include "trainer/layers/images.h"
#include "trainer/layers/linear.h"
#include "trainer/layers/normalization.h"
#include "trainer/layers/tables.h"
#include "trainer/layers/transformer_blocks.h"

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

TEST(LinearTest, WithoutBiasItIsTheProduct) {
  Device device;
  ParameterSet parameters(1);
  Linear layer(device, parameters, "fc",
               {.rows = 3, .inputs = 4, .outputs = 5, .deviation = 0.3f, .bias = false});
  ASSERT_EQ(parameters.size(), 1u);
  check_layer(layer, parameters, random_values(12, 1));
}

TEST(ReluTest, GradientsMatchDifferences) {
  ParameterSet none(1);
  Relu layer(37);
  std::vector<float> input = random_values(37, 2);
  for (float& x : input) x += x > 0.0f ? 0.1f : -0.1f;  // away from the kink
  check_layer(layer, none, input);
}

TEST(ReluTest, NanStays) {
  Relu layer(19);
  std::vector<float> input(19, -1.0f);
  input[2] = input[18] = std::numeric_limits<float>::quiet_NaN();
  const std::span<const float> output = layer.forward(input, {});
  for (std::size_t i = 0; i < output.size(); ++i) {
    EXPECT_EQ(std::isnan(output[i]), i == 2 || i == 18) << i;
  }
}

TEST(LstmCells, NanOfAnyGateStays) {
  constexpr std::size_t kWidth = 19;
  for (std::size_t gate = 0; gate < 4; ++gate) {
    std::vector<float> gates(4 * kWidth, 0.5f), cells(kWidth), squashed(kWidth), states(kWidth);
    gates[gate * kWidth + 2] = std::numeric_limits<float>::quiet_NaN();
    lstm_cells(gates, std::vector<float>(kWidth, 1.0f), kWidth, cells, squashed, states);
    for (std::size_t j = 0; j < kWidth; ++j) {
      EXPECT_EQ(std::isnan(states[j]), j == 2) << "gate " << gate << ", cell " << j;
    }
  }
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

TEST(TransformerBlockTest, GradientsMatchDifferences) {
  Device device;
  ParameterSet parameters(1);
  TransformerBlock layer(device, parameters, "block",
                         {.attention = {.sequences = 2, .length = 5, .width = 8, .heads = 2},
                          .deviation = 0.2f,
                          .residual_deviation = 0.2f});
  check_layer(layer, parameters, random_values(2 * 5 * 8, 8));
}

TEST(TransformerBlockTest, GradientsWithRotaryPositionsAndDropoutMatchDifferences) {
  Device device;
  ParameterSet parameters(1);
  TransformerBlock layer(device, parameters, "block",
                         {.attention = {.sequences = 2,
                                        .length = 5,
                                        .width = 8,
                                        .heads = 2,
                                        .dropout = {.share = 0.2f, .seed = 3}},
                          .deviation = 0.2f,
                          .residual_deviation = 0.2f,
                          .has_rotary_positions = true});
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

  parameters[0].gradient()[5] = 100.0f;  // from an earlier step
  layer.backward(std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  EXPECT_EQ(parameters[0].gradient()[7 * 3], 8.0f);
  EXPECT_EQ(parameters[0].gradient()[299 * 3 + 1], 5.0f);
  EXPECT_EQ(parameters[0].gradient()[2], 12.0f);
  EXPECT_EQ(parameters[0].gradient()[5], 0.0f);
  EXPECT_EQ(parameters[1].gradient()[0], 8.0f);   // positions 0: 1 + 7
  EXPECT_EQ(parameters[1].gradient()[5], 18.0f);  // positions 1: 6 + 12
}

TEST(EmbeddingTest, WithoutPositionsItIsTheRowsOfTokens) {
  ParameterSet parameters(1);
  Embedding layer(parameters, "embedding",
                  {.sequences = 1,
                   .length = 2,
                   .tokens = 5,
                   .width = 2,
                   .deviation = 0.5f,
                   .has_positions = false});
  ASSERT_EQ(parameters.size(), 1u);
  parameters.own_gradients();
  const std::vector<std::int32_t> ids = {4, 4};
  const auto output = layer.forward(ids);
  EXPECT_EQ(output[3], parameters[0].value()[9]);
  layer.backward(std::vector<float>{1, 2, 3, 4});
  EXPECT_EQ(parameters[0].gradient()[9], 6.0f);
}

// In a language model, the output layer shares the table of the embedding.
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

constexpr std::size_t kDropoutWidth = 50;

/// Returns the dropout mask of samples from `position` on.
std::vector<float> mask(const Dropout::Options& options, const Pass& pass) {
  Dropout layer(options);
  const auto y = layer.forward(std::vector<float>(options.samples * options.width, 1.0f), pass);
  return {y.begin(), y.end()};
}

TEST(DropoutTest, GradientsMatchDifferences) {
  ParameterSet none(1);
  Dropout layer({.samples = 4, .width = kDropoutWidth, .mask = {.share = 0.3f, .seed = 1}});
  check_layer(layer, none, random_values(4 * kDropoutWidth, 2));
}

// Of 20,000 independent elements, five deviations of the share are 5 sqrt(0.3 · 0.7 / 20000) =
// 0.016.
TEST(DropoutTest, DropsItsShareAndKeepsTheMean) {
  const std::vector<float> y =
      mask({.samples = 400, .width = kDropoutWidth, .mask = {.share = 0.3f, .seed = 1}}, {});
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
  Dropout layer({.samples = 2, .width = kDropoutWidth, .mask = {.share = 0.3f, .seed = 1}});
  const std::vector<float> x = random_values(2 * kDropoutWidth, 3);
  const auto y = layer.forward(x, {.is_training = false});
  EXPECT_EQ(std::vector<float>(y.begin(), y.end()), x);
}

// Two ranks with two samples each drop the same elements as one rank with four samples.
TEST(DropoutTest, FollowsTheSampleWhateverTheBatch) {
  Dropout::Options options{
      .samples = 4, .width = kDropoutWidth, .mask = {.share = 0.5f, .seed = 1}};
  const Pass whole{.epoch = 3, .first_position = 10};
  const std::vector<float> all = mask(options, whole);
  options.samples = 2;
  std::vector<float> parts = mask(options, whole);
  const std::vector<float> second = mask(options, {.epoch = 3, .first_position = 12});
  parts.insert(parts.end(), second.begin(), second.end());
  EXPECT_EQ(parts, all);
}

TEST(DropoutTest, DiffersBySeedLayerEpochAndPosition) {
  const Dropout::Options options{
      .samples = 1, .width = kDropoutWidth, .mask = {.share = 0.5f, .seed = 1}};
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
