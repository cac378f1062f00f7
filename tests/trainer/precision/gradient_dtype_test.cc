// Tests bfloat16 gradients, from the layer that writes them to the optimizer that reads them.

#include "trainer/loop/compression_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "comm/base/error.h"
#include "tests/trainer/finite_difference.h"
#include "tests/trainer/small_data.h"
#include "trainer/compute/device.h"
#include "trainer/kernels/kernels.h"
#include "trainer/layers/images.h"
#include "trainer/layers/linear.h"
#include "trainer/layers/normalization.h"
#include "trainer/optimizer/update_gate.h"
#include "trainer/parameter_set.h"
#include "trainer/random.h"

namespace kolo::trainer {
namespace {

using Halves = std::vector<BFloat16>;

/// Binds a new bfloat16 gradient to `parameter` and returns its memory.
Halves bind_rounded(Parameter& parameter) {
  Halves memory(parameter.size());
  parameter.bind_gradient(std::span(memory));
  return memory;
}

Halves rounded(std::span<const float> values) {
  Halves result;
  for (const float value : values) result.push_back(to_bfloat16(value));
  return result;
}

std::vector<float> gradient_of(const Parameter& parameter) {
  std::vector<float> values(parameter.size());
  parameter.visit_gradient([&](std::size_t begin, std::span<const float> part) {
    std::ranges::copy(part, values.begin() + static_cast<std::ptrdiff_t>(begin));
  });
  return values;
}

// In bfloat16 1 + 2^-8 is 1, so two such contributions added one after the other would be lost.
TEST(RoundedGradientTest, ContributionsAddUpInFloat32AndAreRoundedOnce) {
  ParameterSet parameters(1);
  Parameter& p = parameters.add("p", {3}, {});
  const Halves memory = bind_rounded(p);
  parameters.accumulate(3);
  int completed = 0;
  parameters.on_gradient_ready([&](std::size_t) { ++completed; });
  for (int step = 0; step < 2; ++step) {
    for (const float value : {1.0f, 0x1p-8f, 0x1p-8f}) {
      const Contribution into = p.contribution(DType::kBFloat16);
      ASSERT_EQ(into.dtype, DType::kFloat32);
      auto* const sums = static_cast<float*>(into.data);
      for (int i = 0; i < 3; ++i) {
        sums[i] = into.into == Into::kAdd ? sums[i] + value : value;
      }
      p.contributed();
    }
    EXPECT_EQ(completed, step + 1);
    EXPECT_EQ(memory, Halves(3, to_bfloat16(1.0f + 0x1p-7f)));
  }
}

// Numbers of all sizes include halfway cases, subnormal and infinite numbers, and NaN.
TEST(BFloat16KernelTest, RoundsAsOneNumberAtATime) {
  std::vector<float> values;
  Random random(5);
  for (int i = 0; i < 5000; ++i) {
    const auto bits = static_cast<std::uint32_t>(random.next());
    values.push_back(std::bit_cast<float>(bits));
    values.push_back(std::bit_cast<float>(bits & 0xffff8000u));
  }
  values.insert(values.end(),
                {0.0f, -0.0f, 0x1p-149f, -0x1p-149f, 0x1.fffffep127f,
                 std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()});
  Halves halves(values.size());
  round_to_bfloat16(values, halves);
  EXPECT_EQ(halves, rounded(values));
  std::vector<float> wide(values.size());
  widen(halves, wide);
  EXPECT_EQ(rounded(wide), halves);
}

TEST(RoundedGradientTest, IsReadInPartsThatTogetherAreAll) {
  ParameterSet parameters(1);
  Parameter& p = parameters.add("p", {5000}, {});
  const Halves memory = bind_rounded(p);
  const std::vector<float> values = random_values(5000, 1);
  std::ranges::copy(values, p.gradient().begin());
  p.contributed();
  EXPECT_EQ(memory, rounded(values));
  EXPECT_EQ(rounded(gradient_of(p)), memory);
  EXPECT_NEAR(gradient_norm(parameters), std::sqrt(dot(values, values)), 1e-2);
  p.gradient()[4999] = std::numeric_limits<float>::infinity();
  p.contributed();
  EXPECT_TRUE(std::isinf(gradient_norm(parameters)));
  EXPECT_EQ(first_not_finite(parameters), "the gradient of 'p'");
}

class RoundingLayersTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!can_compute(DType::kBFloat16)) {
      GTEST_SKIP() << "oneDNN has no bfloat16 products on this processor";
    }
  }

  /// Compares the bfloat16 gradients of the layer that `make` adds to a set with its float32
  /// gradients, rounded. They must be equal; products, whose sums may have another order, may
  /// differ by one unit.
  template <typename Make>
  void expect_rounded(std::size_t inputs, const Make& make, std::size_t direct) {
    std::vector<std::vector<float>> exact, actual;
    std::size_t without_detour = 0;
    for (auto* results : {&exact, &actual}) {
      Device device(DType::kBFloat16);
      ParameterSet parameters(1);
      const std::unique_ptr<Layer> layer = make(device, parameters);
      std::vector<Halves> memories;
      if (results == &exact) {
        parameters.own_gradients();
      } else {
        for (std::size_t i = 0; i < parameters.size(); ++i) {
          memories.push_back(bind_rounded(parameters[i]));
        }
      }
      const std::vector<float> x = random_values(inputs, 5);
      const auto y = layer->forward(x, {});
      layer->backward(random_values(y.size(), 6));
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        results->push_back(gradient_of(parameters[i]));
        if (results == &actual && std::as_const(parameters[i]).gradient().empty()) ++without_detour;
      }
    }
    EXPECT_EQ(without_detour, direct);
    for (std::size_t i = 0; i < exact.size(); ++i) {
      for (std::size_t j = 0; j < exact[i].size(); ++j) {
        ASSERT_NEAR(actual[i][j], exact[i][j], 0x1p-7f * std::abs(exact[i][j]) + 1e-6f) << i;
        ASSERT_EQ(actual[i][j], to_float(to_bfloat16(actual[i][j])));
      }
    }
  }
};

TEST_F(RoundingLayersTest, ADenseLayerWritesItsWeightsGradientInBfloat16) {
  const auto make = [](Device& device, ParameterSet& parameters) {
    return std::make_unique<Linear>(
        device, parameters, "fc",
        Linear::Options{.rows = 24, .inputs = 40, .outputs = 33, .deviation = 0.2f});
  };
  expect_rounded(24 * 40, make, 1);
}

TEST_F(RoundingLayersTest, AConvolutionWritesItsWeightsGradientInBfloat16) {
  for (const std::size_t channels : {1u, 3u, 16u}) {
    const auto make = [channels](Device& device, ParameterSet& parameters) {
      return std::make_unique<Conv2d>(device, parameters, "conv",
                                      Conv2d::Options{.images = 3,
                                                      .height = 9,
                                                      .width = 8,
                                                      .input_channels = channels,
                                                      .output_channels = 24,
                                                      .kernel = 3,
                                                      .padding = 1,
                                                      .deviation = 0.3f});
    };
    expect_rounded(3 * 9 * 8 * channels, make, 1);
  }
}

TEST_F(RoundingLayersTest, GradientsOfOtherLayersAreRoundedAfterwards) {
  const auto make = [](Device&, ParameterSet& parameters) {
    return std::make_unique<LayerNorm>(parameters, "norm", 10, 12);
  };
  expect_rounded(10 * 12, make, 0);
}

// The gradient of a weight that two layers share adds up in float32.
TEST_F(RoundingLayersTest, ASharedWeightIsRoundedAfterItsLastContribution) {
  Device device(DType::kBFloat16);
  ParameterSet parameters(1);
  Linear first(device, parameters, "fc", {.rows = 2, .inputs = 4, .outputs = 4, .deviation = 1.0f});
  Linear second(device, parameters[0], 2);
  const Halves weight = bind_rounded(parameters[0]);
  const Halves bias = bind_rounded(parameters[1]);
  const std::vector<float> x = random_values(8, 1), dy = random_values(8, 2);
  first.forward(x, {});
  second.forward(x, {});
  second.backward(dy);
  EXPECT_EQ(weight, Halves(16));
  first.backward(dy);
  const std::vector<float> sums(parameters[0].gradient().begin(), parameters[0].gradient().end());
  EXPECT_EQ(weight, rounded(sums));
  EXPECT_NE(weight, Halves(16));
}

class RoundedUpdateTest : public testing::TestWithParam<const char*> {};

// For values that bfloat16 represents, both gradient dtypes give the same bits.
TEST_P(RoundedUpdateTest, IsThatOfTheSameGradientInFloat32) {
  std::vector<std::uint64_t> hashes;
  for (const bool is_rounded : {false, true}) {
    ParameterSet parameters(3);
    parameters.add("matrix", {50, 100}, {.deviation = 1.0f});
    parameters.add("vector", {7}, {.mean = 1.0f});
    const auto optimizer = make_optimizer(GetParam(), parameters, {.weight_decay = 0.1f});
    std::vector<Halves> memories;
    if (!is_rounded) parameters.own_gradients();
    for (std::size_t i = 0; is_rounded && i < parameters.size(); ++i) {
      memories.push_back(bind_rounded(parameters[i]));
    }
    for (unsigned step = 0; step < 3; ++step) {
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        const std::vector<float> values = random_values(parameters[i].size(), 10 + step);
        std::ranges::transform(values, parameters[i].gradient().begin(),
                               [](float value) { return to_float(to_bfloat16(value)); });
        parameters[i].contributed();
      }
      optimizer->step(0.1f, 0.5f);
    }
    hashes.push_back(parameters.hash());
  }
  EXPECT_EQ(hashes[0], hashes[1]);
}

INSTANTIATE_TEST_SUITE_P(Optimizers, RoundedUpdateTest,
                         testing::Values("sgd", "adamw", "lamb", "lars"),
                         [](const auto& tested) { return std::string(tested.param); });

TEST(GradientDtypeTest, FollowsThePrecisionUnlessSomethingElseRounds) {
  const auto dtype = [](const char* precision, const Options& options) {
    Config config;
    config.precision = precision;
    return gradient_dtype(config, options);
  };
  EXPECT_EQ(dtype("float32", {}), DType::kFloat32);
  EXPECT_EQ(dtype("float16", {}), DType::kFloat32);
  EXPECT_EQ(dtype("bfloat16", {}), DType::kBFloat16);
  EXPECT_EQ(dtype("bf16", {.wire_dtype = DType::kBFloat16}), DType::kBFloat16);
  EXPECT_EQ(dtype("bfloat16", {.wire_dtype = DType::kFloat16}), DType::kFloat32);
  EXPECT_EQ(dtype("bfloat16", {.wire_dtype = DType::kFloat32}), DType::kFloat32);
  EXPECT_EQ(dtype("bfloat16", {.compression = "topk(0.01)"}), DType::kFloat32);
  EXPECT_EQ(dtype("bfloat16", {.compression = "fp16"}), DType::kFloat32);
  EXPECT_EQ(dtype("bfloat16", {.device = "cuda"}), DType::kFloat32);
}

TEST(GradientDtypeTest, RefusesWhatNeedsFloat32) {
  Config config;
  config.gradients = "bfloat16";
  EXPECT_EQ(gradient_dtype(config, {}), DType::kBFloat16);
  EXPECT_EQ(gradient_dtype(config, {.compression = "fp16"}), DType::kBFloat16);
  EXPECT_EQ(gradient_dtype(config, {.device = "cuda"}), DType::kBFloat16);
  const auto expect_refused = [&](const Options& options, const std::string& part) {
    EXPECT_THAT(error_of([&] { gradient_dtype(config, options); }, ErrorCode::kConfig),
                testing::HasSubstr(part));
  };
  for (const char* rules : {"topk(0.01)", "*.bias=none,*=topk(0.01)", "auto"}) {
    expect_refused({.compression = rules}, std::string("--compression ") + rules);
  }
  config.shard = "optimizer";
  expect_refused({}, "--gradients bfloat16 with --shard optimizer");
  EXPECT_EQ(gradient_dtype(config, {.device = "cuda"}), DType::kBFloat16);
}

}  // namespace
}  // namespace kolo::trainer
