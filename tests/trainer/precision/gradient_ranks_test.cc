// Tests averages of bfloat16 gradients over ranks, which are threads.

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "comm/base/clock.h"
#include "tests/support/runtime_job.h"
#include "tests/trainer/small_data.h"
#include "trainer/loop/gradient_exchange.h"

namespace kolo::trainer {
namespace {

/// One step of a rank. All elements of its gradient are `value`.
struct RoundedStep {
  StepReport report;
  float loss_scale;  ///< Loss scale after the step.
  std::vector<float> average;
  std::uint64_t weights;
};

std::vector<RoundedStep> run_step(const std::vector<float>& values,
                                  const UpdateGate::Options& gate) {
  const auto ranks = static_cast<int>(values.size());
  test::RuntimeJob job(ranks, {.calibrate = "off"});
  std::vector<RoundedStep> steps(values.size());
  test::run_ranks(ranks, [&](const test::RankRun& run) {
    const auto rank = static_cast<std::size_t>(run.rank());
    Runtime runtime = job.join(run.rank());
    {
      ParameterSet parameters(rank);
      parameters.add("matrix", {50, 60}, {.deviation = 1.0f});
      const SteadyClock clock;
      GradientExchange learner(runtime, parameters,
                               make_optimizer("sgd", parameters, {.momentum = 0.0f}),
                               {.gate = gate, .gradient_dtype = DType::kBFloat16}, clock);
      EXPECT_EQ(parameters[0].gradient_dtype(), DType::kBFloat16);
      std::ranges::fill(parameters[0].gradient(), values[rank]);
      parameters[0].contributed();
      RoundedStep& step = steps[rank];
      step.report = learner.step(1.0f);
      step.loss_scale = learner.loss_scale();
      step.weights = parameters.hash();
      parameters[0].visit_gradient([&](std::size_t, std::span<const float> part) {
        step.average.insert(step.average.end(), part.begin(), part.end());
      });
    }
    runtime.close();
  });
  return steps;
}

// In bfloat16, 1 + 2^-8 + 2^-8 loses each small term. The sum is float32; its average is rounded
// once.
TEST(RoundedAverageTest, SumsAreFloat32) {
  const float average = to_float(to_bfloat16((1.0f + 0x1p-7f) / 4.0f));
  for (const RoundedStep& step : run_step({1.0f, 0x1p-8f, 0x1p-8f, 0.0f}, {})) {
    EXPECT_EQ(step.average, std::vector<float>(3000, average));
    EXPECT_NEAR(step.report.gradient_norm, std::sqrt(3000.0) * average, 1e-4);
    EXPECT_FALSE(step.report.is_skipped);
  }
}

TEST(RoundedAverageTest, AnInfinityOfOneRankMakesAllSkipTheStep) {
  const UpdateGate::Options gate{.clip_norm = 1.0,
                                 .loss_scale = {.mode = LossScaler::Mode::kDynamic, .scale = 8.0f}};
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<RoundedStep> steps = run_step({1.0f, 2.0f, infinity}, gate);
  for (const RoundedStep& step : steps) {
    EXPECT_TRUE(step.report.is_skipped);
    EXPECT_EQ(step.loss_scale, 4.0f);
    EXPECT_EQ(step.weights, steps[0].weights);
  }
}

}  // namespace
}  // namespace kolo::trainer
