// Whole jobs on small data. Ranks are threads of this process, each with a runtime of its own.

#include "trainer/loop/training.h"

#include <gtest/gtest.h>

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/base/error.h"
#include "comm/rendezvous/memory_rendezvous.h"
#include "runtime/kolo.h"
#include "tests/trainer/small_data.h"
#include "trainer/compute/device.h"
#include "trainer/compute/threads.h"

namespace kolo::trainer {
namespace {

/// Runs one job of `ranks` ranks and returns their summaries, by rank. The first error of a rank,
/// in the order of ranks, is thrown here.
std::vector<Summary> run_ranks(int ranks, const std::function<Config(int rank)>& config_of) {
  auto endpoints = make_memory_rendezvous(ranks, std::chrono::seconds(60));
  std::vector<Summary> summaries(static_cast<std::size_t>(ranks));
  std::vector<std::exception_ptr> errors(summaries.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < summaries.size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        set_compute_threads(1);
        const Config config = config_of(static_cast<int>(rank));
        Runtime runtime(std::move(endpoints[rank]), config.runtime);
        Device device;
        Task task = make_task(config, device);
        summaries[rank] = train(config, runtime, task, nullptr);
        runtime.close();
      } catch (...) {
        errors[rank] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  return summaries;
}

std::vector<Summary> run_ranks(int ranks, const Config& config) {
  return run_ranks(ranks, [&](int) { return config; });
}

/// A job on small data in `directory` with steps that include uneven ends of epochs.
Config small_job(const std::string& model, const TemporaryDirectory& directory) {
  Config config = default_config(model);
  config.seed = 5;
  config.warmup_steps = 5;
  config.log_every = 1;
  config.eval_every = 0;
  if (model == "gpt") {
    config.data = directory.write("text", small_text(3000));
    config.layers = 2;
    config.width = 16;
    config.heads = 2;
    config.context = 12;
    config.lr = 1e-2f;
  } else {
    write_small_images(directory, 203, 50);
    config.data = directory.path();
    config.hidden = 24;
  }
  return config;
}

class TrainingTest : public testing::TestWithParam<const char*> {
 protected:
  TemporaryDirectory directory_;
};

TEST_P(TrainingTest, LossFallsOnOneRank) {
  Config config = small_job(GetParam(), directory_);
  config.steps = 60;
  config.batch = 16;
  const Summary summary = run_ranks(1, config)[0];
  EXPECT_EQ(summary.steps, 60u);
  EXPECT_EQ(summary.curve.size(), 60u);
  EXPECT_LT(summary.train_loss, 0.5 * summary.curve.front().train_loss);
  EXPECT_LT(summary.eval_loss, 0.6 * summary.curve.front().train_loss);
}

// N ranks with batch B follow one rank with batch N·B; 3 ranks leave uneven and empty parts.
//
// Bound: gradients differ by the order of fp32 sums, relative 1e-6 or so, which AdamW's division by
// the root of small second moments may amplify to full steps of single weights; losses after 20
// steps stay within 1 %.
TEST_P(TrainingTest, RanksTimesBatchFollowOneRankWithTheGlobalBatch) {
  Config config = small_job(GetParam(), directory_);
  config.steps = 20;
  config.batch = 12;
  const Summary one = run_ranks(1, config)[0];
  for (const int ranks : {2, 3, 4}) {
    SCOPED_TRACE(ranks);
    config.batch = 12 / static_cast<std::size_t>(ranks);
    const std::vector<Summary> many = run_ranks(ranks, config);
    ASSERT_EQ(many[0].curve.size(), one.curve.size());
    for (std::size_t i = 0; i < one.curve.size(); ++i) {
      EXPECT_NEAR(many[0].curve[i].train_loss, one.curve[i].train_loss,
                  0.01 * one.curve[i].train_loss)
          << "step " << i;
    }
    EXPECT_NEAR(many[0].eval_loss, one.eval_loss, 0.01 * one.eval_loss);
    for (const Summary& summary : many) EXPECT_EQ(summary.weights_hash, many[0].weights_hash);
  }
}

TEST_P(TrainingTest, RepeatedRunsEndWithTheSameBits) {
  Config config = small_job(GetParam(), directory_);
  config.steps = 10;
  config.batch = 6;
  EXPECT_EQ(run_ranks(2, config)[0].weights_hash, run_ranks(2, config)[0].weights_hash);
}

INSTANTIATE_TEST_SUITE_P(Models, TrainingTest, testing::Values("mlp", "lenet", "gpt"),
                         [](const auto& tested) { return std::string(tested.param); });

TEST(TrainingErrorsTest, RanksWithDifferentOptionsAreTold) {
  const TemporaryDirectory directory;
  const Config config = small_job("gpt", directory);
  try {
    run_ranks(2, [&](int rank) {
      Config mine = config;
      mine.steps = 3 + rank;
      return mine;
    });
    FAIL();
  } catch (const KoloError& error) {
    EXPECT_EQ(error.error().code, ErrorCode::kMismatch);
    EXPECT_NE(std::string(error.what()).find("the options of rank 1 differ"), std::string::npos);
  }
}

}  // namespace
}  // namespace kolo::trainer
