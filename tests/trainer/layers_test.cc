#include <gtest/gtest.h>

#include <vector>

#include "comm/base/error.h"
#include "tests/trainer/finite_difference.h"
#include "trainer/compute/device.h"
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

  parameters[0].gradient()[5] = 100.0f;  // of a step before
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
