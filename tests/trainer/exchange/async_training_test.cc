// Trains whole jobs with asynchronous steps. Ranks are threads.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/base/error.h"
#include "tests/trainer/checkpoint/resumable_job.h"
#include "trainer/checkpoint/run_folder.h"

namespace kolo::trainer {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

class AsyncTrainingTest : public testing::Test {
 protected:
  Config job(const std::string& exchange, std::optional<std::size_t> staleness = {}) const {
    Config config = small_sgd_job(directory_, 0.02f, 20, 6);
    config.exchange = exchange;
    config.staleness = staleness;
    return config;
  }

  TemporaryDirectory directory_;
};

TEST_F(AsyncTrainingTest, WithoutStalenessHasTheBitsOfDense) {
  const Summary dense = run_nodes(3, job("dense"))[0];
  for (const Summary& summary : run_nodes(3, job("async", 0))) {
    expect_same_training(summary, dense);
  }
}

// A rank alone owns all weights: its pushes, the owner's optimizer and its pulls are the updates of
// a dense step.
TEST_F(AsyncTrainingTest, OneRankHasTheBitsOfDense) {
  const auto expect_same = [&](const std::function<void(Config&)>& change) {
    Config dense = job("dense"), async = job("async", 3);
    for (Config* config : {&dense, &async}) {
      config->eval_every = 7;
      config->optimizer_options.weight_decay = 0.02f;
      change(*config);
    }
    expect_same_training(run_ranks(1, async)[0], run_ranks(1, dense)[0]);
  };
  expect_same([](Config& c) { c.optimizer_options.nesterov = true; });
  expect_same([](Config& c) { c.decay_rules = "*bias=0.5"; });
  expect_same([](Config& c) { c.accumulation = 2; });
  expect_same([](Config& c) { c.clip_norm = 0.5; });
  expect_same([](Config& c) { c.optimizer = "adamw"; });
  for (const char* model : {"resnet20", "gpt"}) {
    const Config dense = resumable_job(model, directory_);
    Config async = dense;
    async.exchange = "async";
    expect_same_training(run_ranks(1, async)[0], run_ranks(1, dense)[0]);
  }
}

// The course of several ranks depends on their pace. They learn, they end with equal weights, and
// each evaluation is of equal weights, or its sums over ranks would differ.
TEST_F(AsyncTrainingTest, RanksLearnAndEndWithEqualWeights) {
  for (const char* optimizer : {"sgd", "adamw"}) {
    for (const auto& [staleness, ranks] :
         {std::pair(std::optional<std::size_t>(), 2), {1, 3}, {4, 3}}) {
      SCOPED_TRACE(std::string(optimizer) + " on " + std::to_string(ranks));
      Config config = job("async", staleness);
      config.optimizer = optimizer;
      if (config.optimizer == "adamw") config.lr = 1e-2f;
      config.steps = 60;
      config.eval_every = 25;
      const std::vector<Summary> summaries = run_nodes(ranks, config);
      expect_equal_weights(summaries);
      for (const Summary& summary : summaries) {
        EXPECT_EQ(summary.steps, 60u);
        EXPECT_EQ(summary.eval_loss, summaries[0].eval_loss);
        EXPECT_EQ(summary.train_loss, summaries[0].train_loss);
        EXPECT_EQ(summary.curve[24].eval_loss, summaries[0].curve[24].eval_loss);
        EXPECT_LT(summary.eval_loss, 0.7 * summaries[0].curve.front().train_loss);
      }
    }
  }
}

// Tables, running statistics, dropout.
TEST_F(AsyncTrainingTest, EveryKindOfModelTakesPart) {
  for (const char* model : {"matrix-factorization", "resnet20", "gpt", "lstm"}) {
    SCOPED_TRACE(model);
    Config config = resumable_job(model, directory_);
    if (config.optimizer == "sgd")
      config.lr = 0.01f;  // momentum builds up sooner than in dense steps
    const double dense = run_ranks(kRanks, config)[0].eval_loss;
    config.exchange = "async";
    const std::vector<Summary> summaries = run_ranks(kRanks, config);
    expect_equal_weights(summaries);
    EXPECT_LT(summaries[0].eval_loss, 1.3 * dense);
  }
}

TEST_F(AsyncTrainingTest, GoesOnFromACheckpointAlsoOnOtherRanks) {
  for (const char* optimizer : {"sgd", "adamw"}) {
    Config config = job("async", 2);
    config.optimizer = optimizer;
    const Summary whole = run_ranks(1, config)[0];
    Config stopped = in_run(config, directory_, std::string("alone with ") + optimizer);
    stopped.stop_after = 8;
    ASSERT_FALSE(run_ranks_until([](int) { return false; }, 1, [&](int) { return stopped; })[0]);
    stopped.stop_after.reset();
    Summary resumed = run_ranks(1, stopped)[0];
    EXPECT_EQ(resumed.curve[7].eval_loss.has_value(), true);
    resumed.curve[7].eval_loss.reset();
    resumed.curve[7].eval_metric.reset();
    expect_same_training(resumed, whole);

    // Three ranks save during training; two go on, first without moving.
    config = in_run(config, directory_, std::string("three with ") + optimizer);
    config.batch = 4;
    config.steps = 6;
    config.lr_schedule = "constant";
    config.checkpoint_every = 2;
    const std::vector<Summary> three = run_ranks(3, config);
    EXPECT_EQ(RunFolder(config.run).steps(), (std::vector<std::uint64_t>{6, 4, 2}));
    config.batch = 6;
    const std::vector<Summary> done = run_ranks(2, config);
    expect_equal_weights(done);
    EXPECT_EQ(done[0].weights_hash, three[0].weights_hash);
    config.steps = 40;
    const std::vector<Summary> two = run_ranks(2, config);
    expect_equal_weights(two);
    EXPECT_LT(two[0].eval_loss, three[0].eval_loss);
  }
}

TEST_F(AsyncTrainingTest, AStopIsHeededWhereRanksMeet) {
  Config config = in_run(job("async"), directory_, "run");
  config.checkpoint_every = 5;
  for (const std::uint64_t stop : {5u, 10u}) {
    const auto asks = [](int rank) { return rank == 1; };
    for (const auto& summary : run_ranks_until(asks, 3, [&](int) { return config; })) {
      EXPECT_FALSE(summary.has_value());
    }
    EXPECT_EQ(RunFolder(config.run).steps().front(), stop);
  }
  expect_equal_weights(run_ranks(3, config));
}

// In each step, each of two owners sends half of the gradients and half of the weights.
TEST_F(AsyncTrainingTest, TellsHowManyBytesItSends) {
  const double dense = static_cast<double>(run_nodes(2, job("dense"))[0].wire_bytes_per_step);
  const double bytes = static_cast<double>(run_nodes(2, job("async"))[0].wire_bytes_per_step);
  EXPECT_GT(bytes, 0.4 * dense);  // what an owner sends between two of its steps does not count
  EXPECT_LT(bytes, 1.2 * dense);  // headers, and one pull more at the end
}

// The rank that finds it first leaves the job, and so do the others, which tell why unless another
// one of them was faster to leave.
TEST_F(AsyncTrainingTest, DivergingEndsTheJobOnAllRanks) {
  Config config = job("async");
  config.lr = 1e30f;
  config.steps = 200;
  std::string text;
  try {
    run_ranks(3, config);
  } catch (const KoloError& error) {
    text = error.what();
  }
  EXPECT_THAT(text, AnyOf(HasSubstr("not finite"), HasSubstr("left the job")));
}

TEST_F(AsyncTrainingTest, OptionsThatDoNotGoTogetherAreNamed) {
  const auto refusal = [&](const std::function<void(Config&)>& change) {
    Config config = job("async", 2);
    change(config);
    return error_of(
        [&] {
          validate(config, built_in_catalog());
          run_ranks(2, config);
        },
        ErrorCode::kConfig);
  };
  EXPECT_THAT(refusal([](Config& c) { c.exchange = "dense"; }),
              HasSubstr("--staleness 2: needs --exchange async"));
  EXPECT_THAT(refusal([](Config& c) { c.exchange = "local"; }),
              HasSubstr("--staleness 2: needs --exchange async"));
  EXPECT_THAT(refusal([](Config& c) { c.every = 3; }),
              HasSubstr("--every 3: needs --exchange local or diloco"));
  EXPECT_THAT(refusal([](Config& c) { c.shard = "optimizer"; }),
              HasSubstr("--exchange async with --shard"));
  EXPECT_THAT(refusal([](Config& c) { c.uneven = "join"; }),
              HasSubstr("--exchange async with --uneven join"));
  EXPECT_THAT(refusal([](Config& c) { c.weight_average = 0.9f; }),
              HasSubstr("--exchange async with --weight-average"));
  EXPECT_THAT(refusal([](Config& c) { c.loss_scale = "dynamic"; }),
              HasSubstr("--exchange async with a loss scale"));
  EXPECT_THAT(refusal([](Config& c) { c.sync_batch_norm = true; }),
              HasSubstr("--exchange async with --sync-batch-norm on"));
  EXPECT_THAT(refusal([](Config& c) { c.gradients = "bfloat16"; }),
              HasSubstr("--exchange async with --gradients bfloat16"));
  EXPECT_THAT(refusal([](Config& c) { c.balance = "auto"; }),
              HasSubstr("--balance with --exchange async"));
  EXPECT_THAT(refusal([](Config& c) { c.mesh = "tensor=2"; }), HasSubstr("--exchange async"));
  EXPECT_THAT(refusal([](Config& c) { c.optimizer = "lamb"; }),
              HasSubstr("set --optimizer sgd or adamw"));
  EXPECT_THAT(refusal([](Config& c) { c.runtime.compression = "topk(0.1)"; }),
              HasSubstr("--exchange async with --compression topk(0.1)"));
}

}  // namespace
}  // namespace kolo::trainer
