// Jobs whose last step of an epoch has fewer samples than the others. Ranks are threads.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "comm/base/error.h"
#include "tests/trainer/training_job.h"

namespace kolo::trainer {
namespace {

using testing::HasSubstr;

// 203 training images: eight steps of 24, and 11 that are left. With `join` the last of three ranks
// gets none of them, and of four ranks the last two.
constexpr std::size_t kGlobalBatch = 24;

class UnevenTest : public testing::Test {
 protected:
  Config job(int ranks, const std::string& uneven) const {
    Config config = small_job("mlp", directory_);
    config.optimizer = "sgd";
    config.lr = 0.05f;
    config.uneven = uneven;
    config.steps = 21;
    config.batch = kGlobalBatch / static_cast<std::size_t>(ranks);
    return config;
  }

  /// Bound: gradients differ by the order of fp32 sums and one more rounding, relative 1e-6, in 21
  /// steps of SGD, which amplifies them little. A step whose samples had wrong weights would change
  /// what follows by the share of its samples, several per cent.
  static void expect_follows(const std::vector<Summary>& many, const Summary& one) {
    for (const Summary& summary : many) EXPECT_EQ(summary.weights_hash, many[0].weights_hash);
    ASSERT_EQ(many[0].curve.size(), one.curve.size());
    for (std::size_t i = 0; i < one.curve.size(); ++i) {
      EXPECT_NEAR(many[0].curve[i].train_loss, one.curve[i].train_loss,
                  1e-4 * one.curve[i].train_loss)
          << "step " << i;
    }
    EXPECT_NEAR(many[0].eval_loss, one.eval_loss, 1e-4 * one.eval_loss);
    EXPECT_EQ(many[0].epochs, one.epochs);
  }

  TemporaryDirectory directory_;
};

TEST_F(UnevenTest, RanksFollowOneRankOnTheSameData) {
  for (const char* uneven : {"pad", "drop", "join"}) {
    SCOPED_TRACE(uneven);
    const Summary one = run_ranks(1, job(1, uneven))[0];
    for (const int ranks : {2, 3, 4}) {
      SCOPED_TRACE(ranks);
      expect_follows(run_ranks(ranks, job(ranks, uneven)), one);
    }
  }
}

TEST_F(UnevenTest, OnlyDropLeavesSamplesOut) {
  const Summary dropped = run_ranks(3, job(3, "drop"))[0];
  const Summary joined = run_ranks(3, job(3, "join"))[0];
  EXPECT_EQ(dropped.epochs, 21.0 / 8.0);
  EXPECT_EQ(joined.epochs, 21.0 / 9.0);
  EXPECT_NE(dropped.weights_hash, joined.weights_hash);
}

TEST_F(UnevenTest, RanksJoinWithPassesClippingAndABfloat16Wire) {
  Config config = job(3, "join");
  config.batch = 4;
  config.accumulation = 2;
  config.clip_norm = 0.5;
  Config of_one = job(1, "join");
  of_one.clip_norm = 0.5;
  expect_follows(run_ranks(3, config), run_ranks(1, of_one)[0]);
  config.runtime.wire_dtype = DType::kBFloat16;
  const std::vector<Summary> rounded = run_ranks(3, config);
  for (const Summary& summary : rounded) EXPECT_EQ(summary.weights_hash, rounded[0].weights_hash);
}

TEST_F(UnevenTest, RanksJoinWithAdamWAndALossScale) {
  Config config = job(3, "join");
  config.optimizer = "adamw";
  config.lr = 1e-3f;
  config.loss_scale = "1024";
  const std::vector<Summary> summaries = run_ranks(3, config);
  for (const Summary& summary : summaries) {
    EXPECT_EQ(summary.weights_hash, summaries[0].weights_hash);
  }
}

TEST_F(UnevenTest, WhatDoesNotGoTogetherIsNamed) {
  const auto error_of = [&](const char* uneven, const std::function<void(Config&)>& change) {
    Config config = job(2, uneven);
    change(config);
    try {
      validate(config, built_in_catalog());
      run_ranks(2, config);
    } catch (const KoloError& error) {
      EXPECT_EQ(error.error().code, ErrorCode::kConfig);
      return error.error().what;
    }
    return std::string("no error");
  };
  EXPECT_THAT(error_of("join", [](Config& c) { c.shard = "optimizer"; }),
              HasSubstr("--uneven join with --shard optimizer"));
  EXPECT_THAT(error_of("join", [](Config& c) { c.runtime.compression = "topk(0.01)"; }),
              HasSubstr("--uneven join with --compression topk(0.01)"));
  EXPECT_THAT(error_of("drop", [](Config& c) { c.batch = 200; }),
              HasSubstr("--uneven drop: 203 training samples do not fill a step"));
}

TEST_F(UnevenTest, RowsNeedAllRanks) {
  Config config = small_job("matrix-factorization", directory_);
  config.uneven = "join";
  try {
    run_ranks(2, config);
    FAIL() << "no error";
  } catch (const KoloError& error) {
    EXPECT_THAT(error.error().what, HasSubstr("--uneven join with --row-gradients on"));
  }
}

}  // namespace
}  // namespace kolo::trainer
