// Tests how samples are divided by the speed of ranks. The tests set all times and rates. Ranks are
// threads.

#include "trainer/loop/balance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <numeric>
#include <string>
#include <vector>

#include "comm/base/error.h"
#include "tests/support/runtime_job.h"
#include "tests/trainer/checkpoint/resumable_job.h"
#include "trainer/data/dataset.h"

namespace kolo::trainer {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(DealOutTest, FollowsTheRates) {
  EXPECT_THAT(deal_out(24, {1, 1, 1}), ElementsAre(8, 8, 8));
  EXPECT_THAT(deal_out(24, {2, 1}), ElementsAre(16, 8));
  EXPECT_THAT(deal_out(24, {1, 2, 5}), ElementsAre(3, 6, 15));
  EXPECT_THAT(deal_out(10, {1, 1, 1}), ElementsAre(4, 3, 3));
  EXPECT_THAT(deal_out(10, {10, 11, 11}), ElementsAre(3, 4, 3));
}

TEST(DealOutTest, LeavesOneForEach) {
  EXPECT_THAT(deal_out(10, {1000, 1}), ElementsAre(9, 1));
  EXPECT_THAT(deal_out(4, {1, 1000, 1, 1000}), ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(deal_out(6, {1, 1000, 1, 1}), ElementsAre(1, 3, 1, 1));
  EXPECT_THAT(error_of(
                  [] {
                    deal_out(1, {1, 1});
                  },
                  ErrorCode::kUsage),
              HasSubstr("every rank gets a sample"));
}

TEST(DealOutTest, GivesEverySampleOnce) {
  Random random(3);
  for (int round = 0; round < 500; ++round) {
    std::vector<double> rates(1 + random.below(9));
    for (double& rate : rates) rate = 0.01 + static_cast<double>(random.below(1000));
    const std::size_t samples = rates.size() + random.below(50);
    const std::vector<std::size_t> parts = deal_out(samples, rates);
    EXPECT_EQ(std::accumulate(parts.begin(), parts.end(), std::size_t{0}), samples);
    EXPECT_GE(*std::ranges::min_element(parts), 1u);
  }
}

TEST(ParseRatesTest, NamesWhatIsNoRate) {
  EXPECT_THAT(parse_rates("2,1,0.5"), ElementsAre(2.0, 1.0, 0.5));
  EXPECT_TRUE(parse_rates("off").empty() && parse_rates("auto").empty());
  for (const char* text : {"", "2,", "2,x", "2,-1", "0,1", "inf,1", "1;2"}) {
    EXPECT_THAT(error_of([&] { parse_rates(text); }, ErrorCode::kConfig),
                HasSubstr("--balance " + std::string(text) + ": name off, auto, or the rates"));
  }
}

TEST(BalanceOptionsTest, MeasuresNoRanksThatWaitForEachOtherInEveryPass) {
  const Catalog catalog = built_in_catalog();
  Config config = default_config(catalog, "resnet20", "");
  config.balance = "auto";
  validate(config, catalog);
  config.sync_batch_norm = true;
  EXPECT_THAT(error_of([&] { validate(config, catalog); }, ErrorCode::kConfig),
              HasSubstr("--balance auto with --sync-batch-norm on"));
  config.balance = "2,1";
  validate(config, catalog);
}

// A step has 12 samples in unequal parts. Parts follow each other in rank order, and in the last
// step no part exceeds the rank's batch.
TEST(UnequalShardingTest, PartsFollowEachOther) {
  const std::vector<std::size_t> batches = {6, 2, 4};
  for (const Uneven uneven : {Uneven::kPad, Uneven::kDrop}) {
    for (std::size_t samples = 12; samples <= 36; ++samples) {
      const Sharding sharding(samples, batches, uneven);
      std::size_t next = 0;
      for (std::size_t step = 0; step < sharding.steps(); ++step) {
        std::size_t count = 0;
        for (std::size_t rank = 0; rank < batches.size(); ++rank) {
          const ShardPart part = sharding.part(step, rank);
          EXPECT_EQ(part.begin, next);
          EXPECT_LE(part.count, batches[rank]);
          if (part.global_count == 12) {
            EXPECT_EQ(part.count, batches[rank]);
          }
          next += part.count;
          count += part.count;
          EXPECT_EQ(part.global_count, sharding.part(step, 0).global_count);
        }
        EXPECT_EQ(count, sharding.part(step, 0).global_count);
      }
      EXPECT_EQ(next, uneven == Uneven::kPad ? samples : samples / 12 * 12);
    }
  }
}

class BalanceTest : public testing::Test {
 protected:
  /// Returns the batches of all ranks after each of `times` decisions. Before decision `time`, a
  /// sample of rank r takes `ms_of(r, time)` milliseconds, except in one step, which takes a
  /// hundred times as long.
  template <typename MsOf>
  static std::vector<std::vector<std::size_t>> decisions(int ranks, std::size_t batch, int times,
                                                         const MsOf& ms_of) {
    std::vector<std::vector<std::size_t>> all;
    test::RuntimeJob job(ranks, {.calibrate = "off"});
    job.run([&](Runtime& runtime) {
      Config config;
      config.balance = "auto";
      config.batch = batch;
      Balance balance(runtime, config);
      std::vector<std::vector<std::size_t>> own;
      for (int time = 0; time < times; ++time) {
        bool has_changed = false;
        const std::vector<std::size_t> before = balance.batches();
        for (std::size_t step = 0; step < Balance::kSteps; ++step) {
          test::require(!has_changed, "a decision ends its steps");
          const auto samples = static_cast<long>(balance.own_batch());
          const milliseconds usual(samples * ms_of(runtime.rank(), time));
          has_changed = balance.after_step(step == 7 ? 100 * usual : usual);
        }
        test::require(has_changed == (balance.batches() != before), "a change is told");
        own.push_back(balance.batches());
      }
      if (runtime.rank() == 0) all = own;
      for (const std::vector<std::size_t>& each : own) {
        for (std::size_t rank = 0; rank < each.size(); ++rank) {
          std::uint64_t low = each[rank], high = low;
          runtime.all_reduce("low", {&low, 1, DType::kInt64}, ReduceOp::kMin).wait();
          runtime.all_reduce("high", {&high, 1, DType::kInt64}, ReduceOp::kMax).wait();
          test::require(low == high, "ranks decide alike");
        }
      }
    });
    return all;
  }
};

TEST_F(BalanceTest, ASlowRankGetsLess) {
  EXPECT_THAT(decisions(2, 12, 2, [](int rank, int) { return rank == 1 ? 2 : 1; }),
              ElementsAre(ElementsAre(16, 8), ElementsAre(16, 8)));
  EXPECT_THAT(decisions(3, 11, 1, [](int rank, int) { return rank == 0 ? 5 : 1; }),
              ElementsAre(ElementsAre(3, 15, 15)));
}

TEST_F(BalanceTest, SamplesAreDealtOutAnewWhenRatesDrift) {
  EXPECT_THAT(
      decisions(2, 12, 4, [](int rank, int time) { return rank == time / 2 ? 3 : 1; }),
      ElementsAre(ElementsAre(6, 18), ElementsAre(6, 18), ElementsAre(18, 6), ElementsAre(18, 6)));
}

// A sample takes 100 ms on one rank and 102 ms on the other, so new parts would gain too little.
TEST_F(BalanceTest, SmallDifferencesChangeNothing) {
  EXPECT_THAT(decisions(2, 50, 2, [](int rank, int) { return rank == 1 ? 102 : 100; }),
              ElementsAre(ElementsAre(50, 50), ElementsAre(50, 50)));
}

struct BalancedJob {
  const char* name;
  const char* model;
  const char* optimizer;
  void (*change)(Config& config);
};

void change_nothing(Config&) {}
void share_gradients(Config& config) { config.shard = "gradients"; }
void add_up_passes(Config& config) {
  config.accumulation = 2;
  config.batch = 3;
}
void load_ahead(Config& config) { config.loader_threads = 2; }

class BalancedTrainingTest : public testing::TestWithParam<BalancedJob> {
 protected:
  /// Returns a job with about 203 samples in steps of 12, so that the last step of an epoch has
  /// fewer samples. Held-out data is evaluated every 5 steps.
  Config job() const {
    Config config = small_job(GetParam().model, directory_);
    config.optimizer = GetParam().optimizer;
    if (config.optimizer == "sgd") config.lr = 0.02f;
    config.steps = 20;
    config.eval_every = 5;
    config.batch = 6;
    GetParam().change(config);
    return config;
  }

  TemporaryDirectory directory_;
};

// The bound is 1e-3 after 20 steps. Sums in another order differ by 1e-7 per step, relatively. ReLU
// and pooling, which may choose another element in later steps, and the division by the root of the
// second moments amplify this difference.
TEST_P(BalancedTrainingTest, FollowsOneRankWithTheJointBatch) {
  Config alone = job();
  alone.batch *= 2;
  alone.shard = "none";
  const Summary expected = run_ranks(1, alone)[0];
  Config config = job();
  const std::uint64_t even = run_ranks(2, config)[0].weights_hash;
  for (const char* rates : {"2,1", "1,5"}) {
    SCOPED_TRACE(rates);
    config.balance = rates;
    const std::vector<Summary> summaries = run_ranks(2, config);
    expect_equal_weights(summaries);
    expect_same_course(summaries[0], expected, 1e-3);
    // Other parts are rounded in another way, unless few samples share a row.
    if (config.model != "matrix-factorization") {
      EXPECT_NE(summaries[0].weights_hash, even);
    }
  }
}

// One of three ranks has a sixth of the samples of another.
TEST_P(BalancedTrainingTest, ResumesWithTheSameBits) {
  Config config = job();
  config.batch = 4;
  config.balance = "1,3,6";
  const Summary whole = run_ranks(kRanks, config)[0];
  const Config run = in_run(config, directory_, "run");
  train_until(8, kRanks, run);
  expect_same_training(run_ranks(kRanks, run)[0], whole);
}

INSTANTIATE_TEST_SUITE_P(Jobs, BalancedTrainingTest,
                         testing::Values(BalancedJob{"Mlp", "mlp", "sgd", change_nothing},
                                         BalancedJob{"Lenet", "lenet", "adamw", change_nothing},
                                         BalancedJob{"Gpt", "gpt", "adamw", load_ahead},
                                         BalancedJob{"Rows", "matrix-factorization", "adamw",
                                                     change_nothing},
                                         BalancedJob{"Accumulated", "mlp", "sgd", add_up_passes},
                                         BalancedJob{"Sharded", "lenet", "adamw", share_gradients}),
                         [](const auto& tested) { return std::string(tested.param.name); });

// There are 203 samples. Two parts of the first rank would not fill a step.
TEST(BalancedDropTest, UnequalPartsFillAStepIfEqualOnesDo) {
  const TemporaryDirectory directory;
  Config config = small_job("mlp", directory);
  config.optimizer = "adamw";
  config.uneven = "drop";
  config.batch = 100;
  config.steps = 2;
  config.balance = "3,1";
  expect_equal_weights(run_ranks(2, config));
}

// A learner keeps its moments, loss scale, residuals and sums when its batch changes between steps.
TEST(LearnerTest, KeepsItsStateWhenItsBatchChanges) {
  const TemporaryDirectory directory;
  for (const char* compression : {"none", "topk(0.05)"}) {
    SCOPED_TRACE(compression);
    Config config = small_job("mlp", directory);
    config.optimizer = "sgd";
    config.lr = 0.02f;
    config.batch = 6;
    config.runtime.compression = compression;
    const auto hash_of = [&](bool changes) {
      std::uint64_t hash = 0;
      test::RuntimeJob job(2, config.runtime);
      job.run([&](Runtime& runtime) {
        const Catalog catalog = built_in_catalog();
        const Task task = make_task(config, catalog);
        const std::unique_ptr<Learner> learner = make_learner(config, runtime, task, catalog);
        DataLoader loader = make_training_loader(config, runtime, task);
        for (std::size_t step = 0; step < 12; ++step) {
          // The second call restores equal parts, so that no rounding differs.
          if (changes && step % 3 == 2) learner->take_batch(8 - 4 * runtime.rank());
          if (changes && step % 3 == 2) learner->take_batch(6);
          const Batch batch = loader.load(0, step);
          learner->forward_backward(batch, row_weight(config, runtime, task, batch));
          learner->await_averages();
          learner->update(0.02f, learner->clip());
        }
        if (runtime.rank() == 0) hash = learner->parameters().hash();
        learner->take_sums();
      });
      return hash;
    };
    EXPECT_EQ(hash_of(true), hash_of(false));
  }
}

TEST(BalanceErrorsTest, OptionsThatDoNotGoTogetherAreNamed) {
  const TemporaryDirectory directory;
  const auto refusal = [&](void (*change)(Config&)) {
    Config config = small_job("mlp", directory);
    config.steps = 2;
    config.balance = "auto";
    change(config);
    return refusal_of(config);
  };
  EXPECT_THAT(refusal([](Config& c) { c.balance = "2,1,1"; }),
              HasSubstr("--balance 2,1,1: 3 rates for 2 ranks"));
  EXPECT_THAT(refusal([](Config& c) { c.balance = "2,slow"; }), HasSubstr("--balance 2,slow:"));
  EXPECT_THAT(refusal([](Config& c) { c.uneven = "join"; }),
              HasSubstr("--balance with --uneven join"));
  EXPECT_THAT(refusal([](Config& c) { c.exchange = "local"; }),
              HasSubstr("--balance with --exchange local"));
  EXPECT_THAT(refusal([](Config& c) { c.runtime.compression = "auto"; }),
              HasSubstr("--balance auto with --compression auto"));
  EXPECT_THAT(refusal([](Config& c) { c.runtime.reproducible = true; }),
              HasSubstr("--balance auto with --reproducible on"));
}

}  // namespace
}  // namespace kolo::trainer
