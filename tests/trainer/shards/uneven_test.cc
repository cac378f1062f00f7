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

// There are 203 training images: eight steps of 24, and 11 more. With `join`, the last of three
// ranks, or the last two of four ranks, get none of these 11.
constexpr std::size_t kGlobalBatch = 24;

class UnevenTest : public testing::Test {
 protected:
  Config job(int ranks, const std::string& uneven) const {
    Config config =
        small_sgd_job(directory_, 0.05f, 21, kGlobalBatch / static_cast<std::size_t>(ranks));
    config.uneven = uneven;
    return config;
  }

  /// Bound: gradients differ by the order of float32 sums and one more rounding, relative 1e-6, in
  /// 21 steps of SGD, which hardly amplifies differences. Wrong weights of samples in a step would
  /// change later losses by the share of these samples, several per cent.
  static void expect_follows(const std::vector<Summary>& many, const Summary& one) {
    expect_equal_weights(many);
    expect_same_course(many[0], one, 1e-4);
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
  expect_equal_weights(rounded);
}

TEST_F(UnevenTest, RanksJoinWithAdamWAndALossScale) {
  Config config = job(3, "join");
  config.optimizer = "adamw";
  config.lr = 1e-3f;
  config.loss_scale = "1024";
  expect_equal_weights(run_ranks(3, config));
}

TEST_F(UnevenTest, WhatDoesNotGoTogetherIsNamed) {
  const auto refusal = [&](const char* uneven, const std::function<void(Config&)>& change) {
    Config config = job(2, uneven);
    change(config);
    return refusal_of(config);
  };
  EXPECT_THAT(refusal("join", [](Config& c) { c.shard = "optimizer"; }),
              HasSubstr("--uneven join with --shard optimizer"));
  EXPECT_THAT(refusal("join", [](Config& c) { c.runtime.compression = "topk(0.01)"; }),
              HasSubstr("--uneven join with --compression topk(0.01)"));
  EXPECT_THAT(refusal("join", [](Config& c) { c.sync_batch_norm = true; }),
              HasSubstr("--uneven join with --sync-batch-norm on"));
  EXPECT_THAT(refusal("drop", [](Config& c) { c.batch = 200; }),
              HasSubstr("--uneven drop: 203 training samples do not fill a step"));
}

TEST_F(UnevenTest, RowsNeedAllRanks) {
  Config config = small_job("matrix-factorization", directory_);
  config.uneven = "join";
  EXPECT_THAT(error_of([&] { run_ranks(2, config); }, ErrorCode::kConfig),
              HasSubstr("--uneven join with --row-gradients on"));
}

}  // namespace
}  // namespace kolo::trainer
