// Compares whole jobs in mixed precision on small data with float32.

#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "tests/trainer/training_job.h"
#include "trainer/compute/device.h"
#include "trainer/precision/precision.h"

namespace kolo::trainer {
namespace {

class MixedPrecisionTrainingTest
    : public testing::TestWithParam<std::tuple<const char*, const char*>> {
 protected:
  void SetUp() override {
    if (!can_compute(parse_precision(precision()))) {
      GTEST_SKIP() << "oneDNN has no " << precision() << " products on this processor";
    }
  }
  static std::string model() { return std::get<0>(GetParam()); }
  static std::string precision() { return std::get<1>(GetParam()); }
  Config job() const {
    Config config = small_job(model(), directory_);
    config.steps = 60;
    config.batch = 8;
    return config;
  }
  /// Bound: operands have relative errors of up to 2^-9 (bfloat16) or 2^-12, so losses of all steps
  /// differ by at most a few per cent of the initial loss.
  void expect_follows_float32(Config config) const {
    const Summary exact = run_ranks(2, config)[0];
    config.precision = precision();
    const std::vector<Summary> summaries = run_ranks(2, config);
    const Summary& first = summaries[0];
    EXPECT_EQ(first.weights_hash, summaries[1].weights_hash);
    EXPECT_NE(first.weights_hash, exact.weights_hash);
    EXPECT_EQ(first.precision, precision());
    EXPECT_EQ(first.skipped_steps, 0u);
    const double bound = 0.03 * exact.curve[0].train_loss;
    for (std::size_t i = 0; i < exact.curve.size(); ++i) {
      EXPECT_NEAR(first.curve[i].train_loss, exact.curve[i].train_loss, bound) << "step " << i;
    }
    EXPECT_NEAR(first.eval_loss, exact.eval_loss, bound);
  }

 private:
  TemporaryDirectory directory_;
};

/// Tests of what does not depend on the layers of a model.
class MixedPrecisionLoopTest : public MixedPrecisionTrainingTest {};

TEST_P(MixedPrecisionTrainingTest, FollowsFloat32AndRanksEndWithTheSameBits) {
  expect_follows_float32(job());
}

class MixedPrecisionPassesTest : public MixedPrecisionTrainingTest {};

// Copies of weights follow the last update in each of several passes, and after the running mean
// has replaced the weights.
TEST_P(MixedPrecisionPassesTest, FollowsFloat32WithPassesThatAddUpAndMeansOfWeights) {
  Config config = job();
  config.batch = 4;
  config.accumulation = 2;
  config.weight_average = 0.9f;
  config.eval_every = 10;
  expect_follows_float32(config);
}

TEST_P(MixedPrecisionLoopTest, RepeatedRunsEndWithTheSameBits) {
  Config config = job();
  config.steps = 10;
  config.precision = precision();
  EXPECT_EQ(run_ranks(2, config)[0].weights_hash, run_ranks(2, config)[0].weights_hash);
}

// Gradients that are finite in float32 but far too large for float16 make all ranks skip the step.
TEST_P(MixedPrecisionLoopTest, GradientsThatOverflowSkipTheStep) {
  Config config = job();
  config.steps = 3;
  config.loss_scale = "1e10";
  config.precision = precision();
  const std::vector<Summary> summaries = run_ranks(3, config);
  expect_equal_weights(summaries);
  for (const Summary& summary : summaries) {
    EXPECT_EQ(summary.skipped_steps, precision() == "float16" ? 3u : 0u);
  }
}

// Weights are kept in float32, so updates far below the last bit of a 16-bit copy are not lost.
TEST_P(MixedPrecisionLoopTest, SmallUpdatesReachTheWeights) {
  Config config = job();
  config.precision = precision();
  config.optimizer = "sgd";
  config.warmup_steps = 0;
  config.lr = 1e-6f;
  config.steps = 1;
  const std::uint64_t once = run_ranks(1, config)[0].weights_hash;
  config.lr_schedule = "constant";
  config.steps = 2;
  EXPECT_NE(run_ranks(1, config)[0].weights_hash, once);
}

// Gradients have relative errors of 2^-9 in every layer, also if contributions add up.
TEST_P(MixedPrecisionTrainingTest, FollowsFloat32WithGradientsInBfloat16) {
  Config config = job();
  config.gradients = "bfloat16";
  EXPECT_EQ(run_ranks(1,
                      [&](int) {
                        Config short_job = config;
                        short_job.steps = 1;
                        return short_job;
                      })[0]
                .wire,
            "bfloat16");
  for (const std::size_t passes : {1u, 2u}) {
    config.accumulation = passes;
    config.batch = 8 / passes;
    expect_follows_float32(config);
  }
}

const auto kPrecisions = testing::Values("bfloat16", "float16");
const auto name_of_case = [](const auto& tested) {
  return std::string(std::get<0>(tested.param)) + "_" + std::get<1>(tested.param);
};
INSTANTIATE_TEST_SUITE_P(Jobs, MixedPrecisionTrainingTest,
                         testing::Combine(testing::Values("mlp", "lenet", "gpt"), kPrecisions),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(Jobs, MixedPrecisionPassesTest,
                         testing::Combine(testing::Values("gpt"), kPrecisions), name_of_case);
INSTANTIATE_TEST_SUITE_P(Jobs, MixedPrecisionLoopTest,
                         testing::Combine(testing::Values("mlp"), kPrecisions), name_of_case);

}  // namespace
}  // namespace kolo::trainer
