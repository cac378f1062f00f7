// Tests layers of residual networks.

#include <gtest/gtest.h>

#include <vector>

#include "tests/trainer/finite_difference.h"
#include "trainer/compute/device.h"
#include "trainer/layers/images.h"
#include "trainer/models/image_network.h"

namespace kolo::trainer {
namespace {

std::vector<float> all_of(std::span<const float> values) { return {values.begin(), values.end()}; }

TEST(StridedConv2dTest, GradientsMatchDifferences) {
  Device device;
  for (const std::size_t kernel : {1u, 3u}) {
    SCOPED_TRACE(kernel);
    ParameterSet parameters(1);
    const Conv2d::Options options{.images = 2,
                                  .height = 7,
                                  .width = 6,
                                  .input_channels = 3,
                                  .output_channels = 8,
                                  .kernel = kernel,
                                  .stride = 2,
                                  .padding = kernel / 2,
                                  .deviation = 0.2f,
                                  .has_bias = false};
    EXPECT_EQ(options.output_height(), 4u);
    EXPECT_EQ(options.output_width(), 3u);
    Conv2d layer(device, parameters, "conv", options);
    EXPECT_EQ(parameters.size(), 1u);
    EXPECT_EQ(layer.forward(random_values(2 * 7 * 6 * 3, 9), {}).size(), 2u * 4 * 3 * 8);
    check_layer(layer, parameters, random_values(2 * 7 * 6 * 3, 9));
  }
}

TEST(StridedConv2dTest, TakesEverySecondWindow) {
  Device device;
  ParameterSet parameters(1);
  Conv2d layer(device, parameters, "conv",
               {.images = 1,
                .height = 3,
                .width = 4,
                .input_channels = 1,
                .output_channels = 1,
                .kernel = 1,
                .stride = 2,
                .deviation = 0.1f,
                .has_bias = false});
  parameters[0].value()[0] = 10.0f;
  const std::vector<float> input = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  EXPECT_EQ(all_of(layer.forward(input, {})), (std::vector<float>{0, 20, 80, 100}));
}

TEST(OverlappingMaxPoolTest, PaddingIsNeverTheLargest) {
  Device device;
  const MaxPool::Options options{
      .images = 1, .height = 4, .width = 3, .channels = 1, .window = 3, .stride = 2, .padding = 1};
  MaxPool layer(device, options);
  EXPECT_EQ(options.output_height(), 2u);
  EXPECT_EQ(options.output_width(), 2u);
  const std::vector<float> input = {-1, -2, -3, -4, -5, -6, -7, -8, -9, -10, -11, -12};
  EXPECT_EQ(all_of(layer.forward(input, {})), (std::vector<float>{-1, -2, -4, -5}));
  EXPECT_EQ(all_of(layer.backward(std::vector<float>{1, 2, 3, 4})),
            (std::vector<float>{1, 2, 0, 3, 4, 0, 0, 0, 0, 0, 0, 0}));
}

TEST(AveragePoolTest, GradientsMatchDifferences) {
  ParameterSet none(1);
  AveragePool layer({.images = 3, .height = 7, .width = 1, .channels = 5});
  check_layer(layer, none, random_values(3 * 7 * 5, 2));
}

TEST(AveragePoolTest, TakesTheMeanOfEachChannel) {
  AveragePool layer({.images = 1, .height = 1, .width = 2, .channels = 2});
  EXPECT_EQ(all_of(layer.forward(std::vector<float>{1, 10, 3, 30}, {})),
            (std::vector<float>{2, 20}));
}

TEST(PaddedShortcutTest, TakesEverySecondPixelAndAddsChannelsOfZeros) {
  ParameterSet none(1);
  PaddedShortcut layer({.images = 1,
                        .height = 3,
                        .width = 2,
                        .input_channels = 1,
                        .output_channels = 2,
                        .stride = 2});
  EXPECT_EQ(all_of(layer.forward(std::vector<float>{1, 2, 3, 4, 5, 6}, {})),
            (std::vector<float>{1, 0, 5, 0}));
  check_layer(layer, none, random_values(6, 2));
}

class ResidualBlockTest : public testing::TestWithParam<ImageNetwork::Shortcut> {};

TEST_P(ResidualBlockTest, GradientsMatchDifferences) {
  // Batch norm of few rows has a large curvature, and ReLU has kinks. The test therefore uses small
  // steps and allows few failures.
  for (const std::size_t stride : {1u, 2u}) {
    SCOPED_TRACE(stride);
    Device device;
    ParameterSet parameters(3);
    ImageNetwork network({.images = 4, .height = 6, .width = 5, .channels = 4});
    network.residual_block("block",
                           {.channels = stride * 4, .stride = stride, .shortcut = GetParam()});
    Sequential block;
    append_layers(block, device, parameters, network.layers());
    parameters.own_gradients();
    std::vector<float> input = random_values(4 * 6 * 5 * 4, 8);
    const std::size_t outputs = block.forward(input, {}).size();
    EXPECT_EQ(outputs, stride == 1 ? 4u * 6 * 5 * 4 : 4u * 3 * 3 * 8);
    const std::vector<float> weights = random_values(outputs, 7);
    const auto f = [&] { return dot(block.forward(input, {}), weights); };
    f();
    const std::vector<float> gradient = all_of(block.backward(weights));
    const DifferenceBound bound{.step = 0x1.0p-10f, .absolute = 1e-2, .kinks = 0.15};
    expect_gradient(f, input, gradient, "input", bound);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      expect_parameter_gradient(f, parameters[i], bound);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shortcuts, ResidualBlockTest,
                         testing::Values(ImageNetwork::Shortcut::kPadded,
                                         ImageNetwork::Shortcut::kProjection));

}  // namespace
}  // namespace kolo::trainer
