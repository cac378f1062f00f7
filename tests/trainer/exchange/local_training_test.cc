// Trains whole jobs with local steps on small data. Ranks are threads.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "comm/base/error.h"
#include "tests/trainer/checkpoint/resumable_job.h"
#include "trainer/checkpoint/run_folder.h"
#include "trainer/errors.h"

namespace kolo::trainer {
namespace {

using testing::HasSubstr;

class LocalTrainingTest : public testing::Test {
 protected:
  Config job(const std::string& exchange, std::size_t every) const {
    Config config = small_sgd_job(directory_, 0.02f, 20, 6);
    config.exchange = exchange;
    if (exchange != "dense") config.every = every;
    return config;
  }

  TemporaryDirectory directory_;
};

TEST_F(LocalTrainingTest, AnExchangeInEveryStepHasTheBitsOfDense) {
  for (const bool nesterov : {false, true}) {
    Config dense = job("dense", 1), local = job("local", 1);
    dense.optimizer_options.nesterov = local.optimizer_options.nesterov = nesterov;
    const Summary expected = run_nodes(3, dense)[0];
    for (const Summary& summary : run_nodes(3, local)) expect_same_training(summary, expected);
  }
}

TEST_F(LocalTrainingTest, StepsBeforeTheFirstLocalOneHaveTheBitsOfDense) {
  Config local = job("local", 4);
  local.local_after = 20;
  expect_same_training(run_nodes(3, local)[0], run_nodes(3, job("dense", 1))[0]);
  local.local_after = 12;
  const Summary shorter = run_nodes(3, local)[0];
  const Summary dense = run_nodes(3, job("dense", 1))[0];
  for (std::size_t i = 0; i < dense.curve.size(); ++i) {
    const bool is_same = shorter.curve[i].train_loss == dense.curve[i].train_loss;
    // The loss of a step shows the updates of earlier steps. Step 13 is the first local step.
    EXPECT_EQ(is_same, shorter.curve[i].step <= 13) << "step " << shorter.curve[i].step;
  }
}

struct Case {
  const char* name;
  const char* exchange;
  std::size_t every;
  void (*change)(Config& config);
};

void nothing(Config&) {}
void average_within_nodes(Config& config) { config.local_unit = "node"; }
void send_fragments(Config& config) {
  config.fragments = 3;
  config.overlap = 1;
  config.runtime.wire_dtype = DType::kBFloat16;
}
void send_codes(Config& config) {
  config.fragments = 2;
  config.overlap = 1;
  config.runtime.compression = "*=int8(route=owners)";
}
void begin_later(Config& config) {
  config.local_after = 7;
  config.clip_norm = 0.5;
}
void adapt(Config& config) {
  config.optimizer = "adamw";
  config.lr = 1e-2f;
}

class LocalCaseTest : public LocalTrainingTest, public testing::WithParamInterface<Case> {
 protected:
  Config job() const {
    Config config = LocalTrainingTest::job(GetParam().exchange, GetParam().every);
    GetParam().change(config);
    return config;
  }
};

TEST_P(LocalCaseTest, RanksEndWithEqualWeightsThatHaveLearned) {
  Config config = job();
  config.steps = 61;  // training ends between two exchanges
  for (const int ranks : {1, 2, 3}) {
    SCOPED_TRACE(ranks);
    const std::vector<Summary> summaries = run_nodes(ranks, config);
    expect_equal_weights(summaries);
    for (const Summary& summary : summaries) {
      EXPECT_EQ(summary.eval_loss, summaries[0].eval_loss);
      EXPECT_LT(summary.eval_loss, 0.7 * summaries[0].curve.front().train_loss);
    }
  }
}

TEST_P(LocalCaseTest, HasTheSameBitsInEveryRunWhereverItIsEvaluated) {
  Config config = job();
  const Summary once = run_nodes(3, config)[0];
  config.eval_every = 1;
  EXPECT_EQ(run_nodes(3, config)[0].weights_hash, once.weights_hash);
}

TEST_P(LocalCaseTest, GoesOnWithTheSameBits) {
  const Summary whole = run_ranks(kRanks, job())[0];
  Config config = in_run(job(), directory_, "run");
  std::size_t step = 0;
  // The job stops before, during and after exchanges, and in the dense steps at the beginning.
  for (const std::size_t stop : {1u, 4u, 6u, 8u, 13u}) {
    SCOPED_TRACE(stop);
    train_until(stop - step, kRanks, config);
    step = stop + 1;
    ASSERT_EQ(RunFolder(config.run).steps().front(), step);
  }
  for (const Summary& summary : run_ranks(kRanks, config)) expect_same_training(summary, whole);
}

INSTANTIATE_TEST_SUITE_P(Cases, LocalCaseTest,
                         testing::Values(Case{"Local", "local", 4, nothing},
                                         Case{"AdamW", "local", 4, adapt},
                                         Case{"Nodes", "local", 4, average_within_nodes},
                                         Case{"PostLocal", "local", 4, begin_later},
                                         Case{"LocalInFragments", "local", 6, send_fragments},
                                         Case{"DiLoCo", "diloco", 5, nothing},
                                         Case{"DiLoCoInFragments", "diloco", 9, send_fragments},
                                         Case{"DiLoCoInCodes", "diloco", 9, send_codes}),
                         [](const auto& tested) { return std::string(tested.param.name); });

// The bytes of a step are the bytes of a dense step, divided by the number of steps between
// exchanges, and halved by a 16-bit wire. Padding adds less than 1 %, and in dense steps each rank
// also sends 8 bytes of the norm. Means over steps are rounded down.
TEST_F(LocalTrainingTest, SendsAsManyBytesAsPromised) {
  const auto bytes_of = [&](Config config, std::size_t steps) {
    config.steps = steps;
    return static_cast<double>(run_nodes(2, config)[0].wire_bytes_per_step);
  };
  const double dense = bytes_of(job("dense", 1), 4) - 2 * 8;
  const auto expect = [&](const Config& config, std::size_t steps, double share) {
    const double bytes = bytes_of(config, steps);
    EXPECT_LE(bytes, 1.01 * share * dense + 1);
    EXPECT_GE(bytes, 0.99 * share * dense - 1);
  };
  expect(job("local", 8), 16, 1.0 / 8);
  expect(job("diloco", 100), 100, 1.0 / 100);
  Config config = job("diloco", 9);
  config.fragments = 3;
  expect(config, 18, 1.0 / 9);
  config.runtime.wire_dtype = DType::kBFloat16;
  expect(config, 18, 1.0 / 18);
  // With all ranks in one node, no exchange uses the network.
  config.local_unit = "node";
  config.steps = 18;
  EXPECT_EQ(run_ranks(2, config)[0].wire_bytes_per_step, 0u);
}

// Tables with rows, running statistics, dropout, norms of tensors: what a model and an optimizer
// keep goes with the ranks.
TEST_F(LocalTrainingTest, EveryKindOfStateGoesOn) {
  for (const auto& [model, optimizer] :
       std::vector<std::pair<const char*, const char*>>{{"matrix-factorization", "adamw"},
                                                        {"resnet20", "sgd"},
                                                        {"gpt", "lamb"},
                                                        {"embedding-bag", "adamw"}}) {
    SCOPED_TRACE(model);
    Config config = resumable_job(model, directory_);
    config.optimizer = optimizer;
    config.exchange = "diloco";
    config.every = 5;
    config.steps = 12;
    config.outer_momentum = 0.5f;
    const std::vector<Summary> whole = run_ranks(kRanks, config);
    expect_equal_weights(whole);
    config = in_run(config, directory_, std::string("run of ") + model);
    train_until(7, kRanks, config);
    expect_same_training(run_ranks(kRanks, config)[0], whole[0]);
  }
}

// The weights in a checkpoint are the means over ranks, which were evaluated.
TEST_F(LocalTrainingTest, ACheckpointHasTheMeansOfTheWeights) {
  Config config = in_run(job("local", 4), directory_, "run");
  config.steps = 6;
  const Summary whole = run_ranks(kRanks, config)[0];
  Config other = job("dense", 1);
  other.weights = RunFolder(config.run).checkpoint(6);
  other.lr = 1e-30f;  // too small to change a weight
  other.optimizer_options.momentum = 0.0f;
  other.steps = 1;
  EXPECT_EQ(run_ranks(kRanks, other)[0].weights_hash, whole.weights_hash);
}

TEST_F(LocalTrainingTest, OtherNumbersOfRanksResumeOnlyBeforeLocalSteps) {
  Config config = in_run(job("local", 4), directory_, "run");
  config.local_after = 10;
  config.batch = 4;
  train_until(6, 3, config);
  const std::filesystem::path early = RunFolder(config.run).checkpoint(7);
  train_until(8, 3, config);
  config.resume = RunFolder(config.run).checkpoint(16);
  config.run.clear();
  config.batch = 6;
  EXPECT_THAT(
      error_of([&] { run_ranks(2, config); }, ErrorCode::kConfig),
      HasSubstr("local steps have begun, in which each rank has its own state: resume on as "
                "many ranks as saved it"));
  config.resume = early;
  expect_equal_weights(run_ranks(2, config));
}

TEST_F(LocalTrainingTest, OptionsThatDoNotGoTogetherAreNamed) {
  const auto refusal = [&](const char* exchange, const std::function<void(Config&)>& change) {
    Config config = job(exchange, 4);
    change(config);
    return refusal_of(config);
  };
  EXPECT_THAT(refusal("dense", [](Config& c) { c.every = 3; }),
              HasSubstr("--every 3: needs --exchange local or diloco"));
  EXPECT_THAT(refusal("dense", [](Config& c) { c.overlap = 3; }),
              HasSubstr("--overlap 3: needs --exchange local or diloco"));
  EXPECT_THAT(refusal("local", [](Config& c) { c.outer_lr = 0.5f; }),
              HasSubstr("--outer-lr 0.5: needs --exchange diloco"));
  EXPECT_THAT(refusal("local", [](Config& c) { c.shard = "optimizer"; }),
              HasSubstr("--exchange local with --shard"));
  EXPECT_THAT(refusal("diloco", [](Config& c) { c.uneven = "join"; }),
              HasSubstr("--exchange diloco with --uneven join"));
  EXPECT_THAT(refusal("local", [](Config& c) { c.weight_average = 0.9f; }),
              HasSubstr("--exchange local with --weight-average"));
  EXPECT_THAT(refusal("local", [](Config& c) { c.loss_scale = "dynamic"; }),
              HasSubstr("--exchange local with a loss scale"));
  for (const char* exchange : {"local", "diloco"}) {
    EXPECT_THAT(refusal(exchange, [](Config& c) { c.sync_batch_norm = true; }),
                HasSubstr("--exchange " + std::string(exchange) + " with --sync-batch-norm on"));
  }
  EXPECT_THAT(refusal("local", [](Config& c) { c.fragments = 5; }),
              HasSubstr("--fragments 5 with --every 4"));
  EXPECT_THAT(refusal("local", [](Config& c) { c.overlap = 4; }),
              HasSubstr("so --overlap must be below 4"));
  EXPECT_THAT(refusal("local", [](Config& c) { c.runtime.compression = "auto"; }),
              HasSubstr("--exchange local and diloco with --compression auto(0.01): it follows"));
  EXPECT_THAT(refusal("diloco", [](Config& c) { c.runtime.compression = "topk(0.1,dgc)"; }),
              HasSubstr("with --compression topk(0.1,dgc=0.9): dgc is for gradients"));
}

}  // namespace
}  // namespace kolo::trainer
