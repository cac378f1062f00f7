// Whole jobs on small data. Ranks are threads of this process, each with a runtime.

#include "trainer/loop/training.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "comm/base/error.h"
#include "tests/trainer/training_job.h"
#include "trainer/compute/device.h"
#include "trainer/parameter_set.h"

namespace kolo::trainer {
namespace {

using testing::HasSubstr;

class TrainingTest : public testing::TestWithParam<const char*> {
 protected:
  TemporaryDirectory directory_;
};

// Several passes per step do what one pass over all samples does. The bound is that of JobTest.
TEST_P(TrainingTest, PassesTimesBatchFollowOnePassWithAllSamples) {
  Config config = small_job(GetParam(), directory_);
  config.steps = 20;
  config.batch = 6;
  const Summary once = run_ranks(2, config)[0];
  config.batch = 2;
  config.accumulation = 3;
  const std::vector<Summary> thrice = run_ranks(2, config);
  expect_equal_weights(thrice);
  EXPECT_EQ(thrice[0].epochs, once.epochs);
  expect_same_course(thrice[0], once, 0.01);
}

// Bound: a contribution and the average are each rounded to float16 once, relative 2^-11 while the
// scale keeps them normal. That is 500 times a float32 rounding; losses differ by less than 2 %.
TEST_P(TrainingTest, LossScaledGradientsThatTravelAsFloat16FollowFloat32) {
  Config config = small_job(GetParam(), directory_);
  config.steps = 20;
  config.batch = 6;
  const Summary exact = run_ranks(2, config)[0];
  EXPECT_EQ(exact.loss_scale, 1.0);
  config.runtime.wire_dtype = DType::kFloat16;
  config.loss_scale = "1024";
  const std::vector<Summary> scaled = run_ranks(2, config);
  EXPECT_EQ(scaled[0].skipped_steps, 0u);
  EXPECT_EQ(scaled[0].loss_scale, 1024.0);
  EXPECT_NE(scaled[0].weights_hash, exact.weights_hash);
  expect_equal_weights(scaled);
  expect_same_course(scaled[0], exact, 0.02);
}

// The first scale, 65536, makes gradients near 1 too large for plain float16. The wire rescales
// them, so no step is skipped.
TEST_P(TrainingTest, ADynamicScaleOnAFloat16WireSkipsNothing) {
  Config config = small_job(GetParam(), directory_);
  config.steps = 60;
  config.runtime.wire_dtype = DType::kFloat16;
  config.loss_scale = "dynamic";
  for (const int ranks : {1, 3}) {
    SCOPED_TRACE(ranks);
    config.batch = 18 / static_cast<std::size_t>(ranks);
    const std::vector<Summary> summaries = run_ranks(ranks, config);
    const Summary& first = summaries[0];
    EXPECT_EQ(first.skipped_steps, 0u);
    EXPECT_LT(first.train_loss, 0.5 * first.curve.front().train_loss);
    for (const Summary& summary : summaries) {
      EXPECT_EQ(summary.weights_hash, first.weights_hash);
      EXPECT_EQ(summary.skipped_steps, 0u);
      EXPECT_EQ(summary.loss_scale, 65536.0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, TrainingTest, testing::Values("mlp", "lenet", "gpt"),
                         [](const auto& tested) { return std::string(tested.param); });

/// Tests of what does not depend on the model.
class TrainingLoopTest : public testing::Test {
 protected:
  TemporaryDirectory directory_;
};

TEST_F(TrainingLoopTest, EndsAtItsTarget) {
  Config config = small_job("mlp", directory_);
  config.steps = 60;
  config.batch = 8;
  config.eval_every = 5;
  config.target = 0.3;
  for (const Summary& summary : run_ranks(2, config)) {
    EXPECT_LT(summary.steps, 60u);
    EXPECT_GE(summary.eval_metric, 0.3);
    EXPECT_EQ(summary.curve.size(), summary.steps);
  }
}

// A mean over few steps is near the last weights. Ranks agree on it, and it is evaluated and kept.
TEST_F(TrainingLoopTest, TheMeanOfWeightsIsEvaluatedAndKept) {
  Config config = small_job("mlp", directory_);
  config.steps = 40;
  config.batch = 8;
  const Summary last = run_ranks(2, config)[0];
  config.weight_average = 0.5f;
  const std::vector<Summary> mean = run_ranks(2, config);
  EXPECT_EQ(mean[0].weights_hash, mean[1].weights_hash);
  EXPECT_NE(mean[0].weights_hash, last.weights_hash);
  EXPECT_EQ(mean[0].train_loss, last.train_loss);
  EXPECT_NE(mean[0].eval_loss, last.eval_loss);
  EXPECT_NEAR(mean[0].eval_loss, last.eval_loss, 0.1 * last.eval_loss);
}

TEST_F(TrainingLoopTest, ThreadsThatLoadChangeNoBit) {
  Config config = small_job("mlp", directory_);
  config.steps = 30;
  config.batch = 12;
  config.loader_threads = 0;
  const Summary plain = run_ranks(2, config)[0];
  config.loader_threads = 2;
  const Summary ahead = run_ranks(2, config)[0];
  EXPECT_EQ(ahead.weights_hash, plain.weights_hash);
  EXPECT_EQ(ahead.eval_loss, plain.eval_loss);
  EXPECT_GT(plain.data_wait_ms, 0.0);
}

struct Job {
  const char* name;
  const char* model;
  const char* task = "";
  std::size_t steps_to_learn = 150;
};

class JobTest : public testing::TestWithParam<Job> {
 protected:
  JobTest() {
    if (*GetParam().task != 0) config_.task = GetParam().task;
    config_.steps = 20;
    config_.batch = 12;
  }

  TemporaryDirectory directory_;
  Config config_ = small_job(GetParam().model, directory_);
};

class LearningTest : public JobTest {};

TEST_P(LearningTest, LossFallsOnOneRank) {
  config_.steps = GetParam().steps_to_learn;
  const Summary summary = run_ranks(1, config_)[0];
  EXPECT_EQ(summary.steps, config_.steps);
  EXPECT_EQ(summary.curve.size(), config_.steps);
  EXPECT_LT(summary.train_loss, 0.5 * summary.curve.front().train_loss);
  EXPECT_LT(summary.eval_loss, 0.6 * summary.curve.front().train_loss);
}

// N ranks with batch B follow one rank with batch N·B, also in dropout and hidden words. 3 ranks
// have uneven and empty parts.
//
// Bound: gradients differ by the order of float32 sums, relative about 1e-6. AdamW's division by
// the root of small second moments may amplify that to full steps of single weights. Losses after
// 20 steps differ by less than 1 %.
TEST_P(JobTest, RanksTimesBatchFollowOneRankWithTheGlobalBatch) {
  const Summary one = run_ranks(1, config_)[0];
  const bool is_first = GetParam().name == std::string("mlp");
  for (const int ranks : is_first ? std::vector<int>{2, 3, 4} : std::vector<int>{3}) {
    SCOPED_TRACE(ranks);
    config_.batch = 12 / static_cast<std::size_t>(ranks);
    const std::vector<Summary> many = run_ranks(ranks, config_);
    expect_same_course(many[0], one, 0.01);
    expect_equal_weights(many);
  }
}

const Job kPlainJobs[] = {{"mlp", "mlp", "", 60}, {"lenet", "lenet", "", 60},
                          {"gpt", "gpt", "", 60}, {"embedding_bag", "embedding-bag"},
                          {"lstm", "lstm"},       {"matrix_factorization", "matrix-factorization"}};
const auto name_of_job = [](const auto& tested) { return std::string(tested.param.name); };
INSTANTIATE_TEST_SUITE_P(Jobs, LearningTest, testing::ValuesIn(kPlainJobs), name_of_job);
INSTANTIATE_TEST_SUITE_P(Jobs, JobTest, testing::ValuesIn(kPlainJobs), name_of_job);
INSTANTIATE_TEST_SUITE_P(Bert, JobTest,
                         testing::Values(Job{"bert_classes", "bert", "text-classification"},
                                         Job{"bert_masked_words", "bert", "masked-tokens"}),
                         name_of_job);

class RowTrainingTest : public JobTest {};

// If rows without a gradient do not move, whole gradients have the same effect.
TEST_P(RowTrainingTest, PlainStepsAreThoseOfWholeGradients) {
  config_.optimizer = "sgd";
  config_.optimizer_options.momentum = 0.0f;
  config_.optimizer_options.weight_decay = 0.0f;
  config_.steps = 40;
  config_.lr = 0.5f;
  config_.clip_norm = 0.5;
  const std::vector<Summary> rows = run_ranks(2, config_);
  expect_equal_weights(rows);
  config_.row_gradients = false;
  expect_same_course(rows[0], run_ranks(2, config_)[0], 0.01);
}

INSTANTIATE_TEST_SUITE_P(Models, RowTrainingTest,
                         testing::Values(kPlainJobs[3], kPlainJobs[4], kPlainJobs[5]), name_of_job);

Config small_resnet_job(const TemporaryDirectory& directory) {
  Config config = small_job("resnet20", directory);
  config.steps = 12;
  config.batch = 12;
  return config;
}

TEST(BatchNormTrainingTest, AResidualNetworkLearns) {
  const TemporaryDirectory directory;
  Config config = small_resnet_job(directory);
  config.steps = 60;
  const Summary summary = run_ranks(1, config)[0];
  EXPECT_LT(summary.train_loss, 0.3 * summary.curve.front().train_loss);
  EXPECT_GT(summary.eval_metric, 0.8);
}

// Ranks end with equal weights and running statistics. During training, their statistics differ.
TEST(BatchNormTrainingTest, RanksEndWithTheSameStatistics) {
  const TemporaryDirectory directory;
  Config config = small_resnet_job(directory);
  config.batch = 5;  // uneven and empty parts
  const std::vector<Summary> summaries = run_ranks(3, config);
  for (const Summary& summary : summaries) {
    EXPECT_EQ(summary.weights_hash, summaries[0].weights_hash);
    EXPECT_EQ(summary.eval_loss, summaries[0].eval_loss);
  }
}

// A rank continues training with its own statistics, not with the means that are evaluated.
TEST(BatchNormTrainingTest, EvaluationChangesNoBit) {
  const TemporaryDirectory directory;
  Config config = small_resnet_job(directory);
  const std::uint64_t rarely = run_ranks(2, config)[0].weights_hash;
  config.eval_every = 1;
  EXPECT_EQ(run_ranks(2, config)[0].weights_hash, rarely);
}

// There are six steps, because the runs diverge at the first ReLU unit that rounding switches, here
// after eight steps. Without the option they diverge in the first step.
TEST(BatchNormTrainingTest, SynchronizedRanksFollowOneRankWithTheGlobalBatch) {
  const TemporaryDirectory directory;
  Config config = small_resnet_job(directory);
  config.sync_batch_norm = true;
  config.steps = 6;
  const Summary one = run_ranks(1, config)[0];
  const auto largest_deviation = [&](int ranks) {
    config.batch = 12 / static_cast<std::size_t>(ranks);
    const Summary many = run_ranks(ranks, config)[0];
    double largest = 0.0;
    for (std::size_t i = 0; i < one.curve.size(); ++i) {
      const double loss = one.curve[i].train_loss;
      const double deviation = std::abs(many.curve[i].train_loss - loss) / loss;
      if (std::isnan(deviation) || deviation > largest) largest = deviation;  // NaN stays
    }
    return largest;
  };
  EXPECT_LT(largest_deviation(2), 0.01);
  EXPECT_LT(largest_deviation(3), 0.01);
  config.sync_batch_norm = false;
  EXPECT_GT(largest_deviation(2), 0.01);
}

TEST(TrainingErrorsTest, RanksWithDifferentOptionsAreTold) {
  const TemporaryDirectory directory;
  const Config config = small_job("gpt", directory);
  EXPECT_THAT(error_of(
                  [&] {
                    run_ranks(2, [&](int rank) {
                      Config mine = config;
                      mine.steps = 3 + rank;
                      return mine;
                    });
                  },
                  ErrorCode::kMismatch),
              HasSubstr("the options of rank 1 differ from those of rank 0: "
                        "--steps is '4' there, and '3' on rank 0"));
}

TEST(TrainingErrorsTest, WhatTheProcessorDoesNotOfferIsAConfigurationError) {
  const TemporaryDirectory directory;
  const auto expect = [&](const std::string& part, void (*change)(Config&)) {
    Config config = small_job("mlp", directory);
    change(config);
    EXPECT_THAT(error_of([&] { run_ranks(1, config); }, ErrorCode::kConfig), HasSubstr(part));
  };
  if (!can_compute(DType::kBFloat16)) {
    expect("--precision bfloat16: oneDNN has no such products for this processor",
           [](Config& c) { c.precision = "bfloat16"; });
  }
  expect("--cuda-graph on: needs --device cuda", [](Config& c) { c.cuda_graph = true; });
  expect("--attention fused: needs --device cuda", [](Config& c) { c.attention = "fused"; });
  // No machine has that many GPUs, and builds without CUDA support none.
  expect("device 'cuda:4711'", [](Config& c) { c.runtime.device = "cuda:4711"; });
}

// The learning rate makes the weights overflow float32. There is one rank, because of several ranks
// some may learn that the first one left before they fail themselves.
TEST(TrainingErrorsTest, LostNumbersEndTheJob) {
  const TemporaryDirectory directory;
  Config config = small_job("mlp", directory);
  config.optimizer = "sgd";
  config.lr = 1e30f;
  config.steps = 20;
  try {
    run_ranks(1, config);
    FAIL();
  } catch (const DivergedError& error) {
    EXPECT_THAT(error.what(), HasSubstr("gradients are not finite, first the "));
    EXPECT_THAT(error.what(), HasSubstr("try a lower --lr"));
  }
}

// After the last update, no gradient would show the damage.
TEST(TrainingErrorsTest, ALossThatIsNotFiniteAtTheEndIsAnErrorToo) {
  const TemporaryDirectory directory;
  Config config = small_job("mlp", directory);
  config.optimizer = "sgd";
  config.warmup_steps = 0;
  config.final_lr_share = 1.0f;
  config.lr = 1e38f;
  config.steps = 1;
  try {
    run_ranks(1, config);
    FAIL();
  } catch (const DivergedError& error) {
    EXPECT_THAT(error.what(), HasSubstr("the loss on held-out data after step 1 is not finite"));
  }
}

TEST(DivergenceTest, NamesTheFirstTensorThatIsNotFinite) {
  ParameterSet parameters(1);
  for (const char* name : {"a", "b", "c"}) parameters.add(name, {2}, {});
  EXPECT_EQ(first_not_finite(parameters), "");  // no gradient has memory
  parameters.own_gradients();
  EXPECT_EQ(first_not_finite(parameters), "");
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  parameters[0].gradient()[1] = kNan;
  parameters[1].gradient()[0] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(first_not_finite(parameters), "the gradient of 'b'");
  parameters[2].value()[1] = kNan;
  EXPECT_EQ(first_not_finite(parameters), "the weights of 'c'");
  parameters[1].value()[1] = -kNan;
  EXPECT_EQ(first_not_finite(parameters), "the weights of 'b'");
}

}  // namespace
}  // namespace kolo::trainer
