// Whole jobs whose tables have gradients of rows, on small data. Ranks are threads.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/trainer/training_job.h"

namespace kolo::trainer {
namespace {

class RowTrainingTest : public testing::TestWithParam<const char*> {
 protected:
  RowTrainingTest() {
    config_.steps = 40;
    config_.batch = 12;
  }

  TemporaryDirectory directory_;
  Config config_ = small_job(GetParam(), directory_);
};

void expect_same_course(const Summary& actual, const Summary& expected) {
  ASSERT_EQ(actual.curve.size(), expected.curve.size());
  for (std::size_t i = 0; i < expected.curve.size(); ++i) {
    EXPECT_NEAR(actual.curve[i].train_loss, expected.curve[i].train_loss,
                0.01 * expected.curve[i].train_loss)
        << "step " << i;
  }
  EXPECT_NEAR(actual.eval_loss, expected.eval_loss, 0.01 * expected.eval_loss);
}

TEST_P(RowTrainingTest, LossFalls) {
  config_.steps = 150;
  const Summary summary = run_ranks(1, config_)[0];
  EXPECT_LT(summary.eval_loss, 0.5 * summary.curve.front().train_loss);
}

// N ranks with batch B follow one rank with batch N·B, also in what drops out; 3 ranks leave uneven
// and empty parts. Bound as in training_test.cc.
TEST_P(RowTrainingTest, RanksTimesBatchFollowOneRankWithTheGlobalBatch) {
  const Summary one = run_ranks(1, config_)[0];
  for (const int ranks : {2, 3, 4}) {
    SCOPED_TRACE(ranks);
    config_.batch = 12 / static_cast<std::size_t>(ranks);
    const std::vector<Summary> many = run_ranks(ranks, config_);
    for (const Summary& summary : many) EXPECT_EQ(summary.weights_hash, many[0].weights_hash);
    expect_same_course(many[0], one);
  }
}

// Where rows without a gradient would not move anyway, whole gradients do the same.
TEST_P(RowTrainingTest, PlainStepsAreThoseOfWholeGradients) {
  config_.optimizer = "sgd";
  config_.optimizer_options.momentum = 0.0f;
  config_.optimizer_options.weight_decay = 0.0f;
  config_.lr = 0.5f;
  config_.clip_norm = 0.5;
  const std::vector<Summary> rows = run_ranks(2, config_);
  EXPECT_EQ(rows[0].weights_hash, rows[1].weights_hash);
  config_.row_gradients = false;
  expect_same_course(rows[0], run_ranks(2, config_)[0]);
}

INSTANTIATE_TEST_SUITE_P(Models, RowTrainingTest,
                         testing::Values("embedding-bag", "lstm", "matrix-factorization"),
                         [](const auto& tested) {
                           std::string name = tested.param;
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace kolo::trainer
