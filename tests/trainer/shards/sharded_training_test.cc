// Compares whole sharded jobs on small data with jobs without shards. Ranks are threads of this
// process, each with a runtime.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "comm/base/error.h"
#include "tests/trainer/training_job.h"
#include "trainer/compute/device.h"
#include "trainer/errors.h"
#include "trainer/parameter_set.h"
#include "trainer/shards/shard_plan.h"

namespace kolo::trainer {
namespace {

using testing::HasSubstr;

struct Case {
  const char* name;
  const char* model;
  const char* optimizer;
  void (*change)(Config& config);
};

void nothing(Config&) {}
void clip(Config& config) { config.clip_norm = 0.2; }
void average_weights(Config& config) { config.weight_average = 0.5f; }
void accumulate(Config& config) { config.accumulation = 2; }
void scale_losses(Config& config) { config.loss_scale = "dynamic"; }
void compute_in_float16(Config& config) { config.precision = "float16"; }
void look_ahead(Config& config) { config.optimizer_options.nesterov = true; }
void decay(Config& config) { config.optimizer_options.weight_decay = 0.1f; }
void take_whole_tables(Config& config) {
  decay(config);
  config.row_gradients = false;
}
void send_16_bits(Config& config) { config.runtime.wire_dtype = DType::kBFloat16; }
void send_16_bits_and_clip(Config& config) {
  send_16_bits(config);
  clip(config);
}
void send_16_bits_of_two_passes(Config& config) {
  send_16_bits(config);
  accumulate(config);
}
void take_few_buckets(Config& config) {
  config.runtime.fusion_bytes = 65536;
  config.steps = 6;
}

const Case kCases[] = {
    {"Sgd", "mlp", "sgd", nothing},
    {"Nesterov", "lenet", "sgd", look_ahead},
    {"AdamW", "lenet", "adamw", nothing},
    {"Clipped", "gpt", "adamw", clip},
    {"Lamb", "gpt", "lamb", decay},
    {"Lars", "lenet", "lars", decay},
    {"LambRows", "matrix-factorization", "lamb", take_whole_tables},
    {"WeightAverage", "mlp", "adamw", average_weights},
    {"Accumulated", "mlp", "adamw", accumulate},
    {"LossScaled", "mlp", "sgd", scale_losses},
    {"Float16Products", "lenet", "adamw", compute_in_float16},
    {"BatchNorm", "resnet20", "sgd", take_few_buckets},
    {"Rows", "matrix-factorization", "adamw", clip},
    {"Bfloat16Wire", "lenet", "adamw", send_16_bits},
    {"Bfloat16WireClipped", "gpt", "lamb", send_16_bits_and_clip},
    {"Bfloat16WireAccumulated", "mlp", "sgd", send_16_bits_of_two_passes},
};

class ShardedTrainingTest : public testing::TestWithParam<Case> {
 protected:
  Config job(int ranks) const {
    Config config = small_job(GetParam().model, directory_);
    config.optimizer = GetParam().optimizer;
    if (config.optimizer == "sgd") config.lr = 0.02f;
    config.steps = 12;
    config.batch = 12 / static_cast<std::size_t>(ranks);
    // Buckets have a few kilobytes: small models have several, and shard boundaries divide tensors.
    config.runtime.fusion_bytes = 4096;
    GetParam().change(config);
    return config;
  }

  TemporaryDirectory directory_;
};

// Ranks of one node sum in rank order, for any rank that needs the sum.
TEST_P(ShardedTrainingTest, HasTheBitsOfTrainingWithoutShards) {
  const bool is_first = GetParam().name == std::string("AdamW");
  for (const int ranks : is_first ? std::vector<int>{1, 2, 3, 4} : std::vector<int>{3}) {
    SCOPED_TRACE(ranks);
    Config config = job(ranks);
    const Summary whole = run_ranks(ranks, config)[0];
    for (const char* shard : {"optimizer", "gradients"}) {
      SCOPED_TRACE(shard);
      config.shard = shard;
      if (config.shard == "gradients" && config.accumulation > 1) continue;
      for (const Summary& summary : run_ranks(ranks, config)) {
        EXPECT_EQ(summary.weights_hash, whole.weights_hash);
        EXPECT_EQ(summary.train_loss, whole.train_loss);
        EXPECT_EQ(summary.eval_loss, whole.eval_loss);
        EXPECT_EQ(summary.skipped_steps, whole.skipped_steps);
        EXPECT_EQ(summary.loss_scale, whole.loss_scale);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Jobs, ShardedTrainingTest, testing::ValuesIn(kCases),
                         [](const auto& tested) { return tested.param.name; });

class ShardedJobTest : public testing::Test {
 protected:
  Config job() const {
    Config config = small_job("lenet", directory_);
    config.steps = 2;
    config.batch = 2;
    config.runtime.fusion_bytes = kBucketBytes;
    return config;
  }
  std::string refusal(const std::function<void(Config&)>& change) {
    Config config = job();
    config.shard = "optimizer";
    change(config);
    return refusal_of(config);
  }

  static constexpr std::size_t kBucketBytes = 16384;
  TemporaryDirectory directory_;
};

TEST_F(ShardedJobTest, FallsAsComputed) {
  Config config = job();
  const Catalog catalog = built_in_catalog();
  const Task task = make_task(config, catalog);
  Device device(DType::kFloat32);
  const auto model = catalog.models.at(config.model).make(model_setting(config, task), device);
  const ParameterSet& parameters = model->parameters();
  constexpr std::size_t kMoments = 2;  // AdamW's moments; it also has a step count
  for (const int ranks : {2, 4, 8}) {
    SCOPED_TRACE(ranks);
    config.shard = "none";
    const Summary whole = run_ranks(ranks, config)[0];
    const std::size_t whole_state = kMoments * parameters.element_count() * sizeof(float);
    EXPECT_EQ(whole.optimizer_bytes, whole_state + sizeof(std::uint64_t));
    config.shard = "gradients";
    const std::vector<Summary> sharded = run_ranks(ranks, config);
    const auto n = static_cast<std::size_t>(ranks);
    const ShardPlan plan(parameters, n, kBucketBytes);
    std::size_t largest = 0, parts = 0;
    for (const ShardPlan::Bucket& bucket : plan.buckets()) {
      largest = std::max(largest, bucket.count);
      parts += plan.part_count(bucket);
    }
    for (std::size_t rank = 0; rank < n; ++rank) {
      SCOPED_TRACE(rank);
      std::size_t owned = 0;
      for (std::size_t i = 0; i < parameters.size(); ++i) owned += plan.range(i, rank).count;
      EXPECT_EQ(sharded[rank].optimizer_bytes,
                kMoments * owned * sizeof(float) + sizeof(std::uint64_t));
      EXPECT_LE(owned, parts);
      // A rank has its parts, and the memory of the two buckets in use.
      EXPECT_EQ(sharded[rank].gradient_bytes, (parts + 2 * largest) * sizeof(float));
    }
    // A part exceeds its share of the elements by padding: less than a cache line per parameter,
    // divided among all ranks, and a cache line per bucket.
    const std::size_t padding = parameters.size() * ShardPlan::kAlignment / n +
                                plan.buckets().size() * ShardPlan::kAlignment;
    EXPECT_LE(parts, parameters.element_count() / n + padding);
  }
}

// Sums over nodes add up the sums of each node, in node order. All-reduce has the same order for
// two ranks, and with `direct` for more.
TEST_F(ShardedJobTest, HasTheBitsOfTrainingWithoutShardsBetweenNodes) {
  struct Shape {
    int nodes, ranks_per_node;
    const char* algorithm;
    const char* optimizer;
    DType wire = DType::kFloat32;
  };
  for (const Shape& shape :
       {Shape{2, 1, "auto", "adamw"}, Shape{2, 2, "hierarchical:direct,direct", "lamb"},
        Shape{3, 1, "direct", "adamw"}, Shape{3, 1, "auto", "sgd", DType::kBFloat16},
        Shape{2, 2, "hierarchical:direct,direct", "adamw", DType::kBFloat16}}) {
    const int ranks = shape.nodes * shape.ranks_per_node;
    SCOPED_TRACE(ranks);
    Config config = job();
    config.steps = 4;
    config.clip_norm = 0.2;
    config.optimizer = shape.optimizer;
    config.optimizer_options.weight_decay = 0.1f;
    config.runtime.algorithm = shape.algorithm;
    config.runtime.wire_dtype = shape.wire;
    const auto of_rank = [&](int rank) {
      Config own = config;
      own.runtime.node_id = std::to_string(rank / shape.ranks_per_node);
      return own;
    };
    const Summary whole = run_ranks(ranks, of_rank)[0];
    EXPECT_EQ(whole.nodes, shape.nodes);
    config.shard = "gradients";
    for (const Summary& summary : run_ranks(ranks, of_rank)) {
      EXPECT_EQ(summary.weights_hash, whole.weights_hash);
    }
  }
}

// On a 16-bit wire, shards are sums of the nodes' rounded sums. `direct` does not round these.
TEST_F(ShardedJobTest, AnOrderOfSumsThatShardsDoNotHaveIsNamed) {
  Config config = job();
  config.shard = "optimizer";
  config.runtime.wire_dtype = DType::kBFloat16;
  config.runtime.algorithm = "direct";
  const auto of_rank = [&](int rank) {
    Config own = config;
    own.runtime.node_id = std::to_string(rank / 2);
    return own;
  };
  EXPECT_THAT(error_of([&] { run_ranks(3, of_rank); }, ErrorCode::kConfig),
              HasSubstr("--shard with --wire bfloat16 and --algorithm direct"));
}

TEST_F(ShardedJobTest, OptionsThatDoNotGoTogetherAreNamed) {
  EXPECT_THAT(refusal([](Config& c) { c.runtime.compression = "topk(0.01)"; }),
              HasSubstr("--shard with --compression topk(0.01)"));
  EXPECT_THAT(refusal([](Config& c) { c.runtime.wire_dtype = DType::kFloat16; }),
              HasSubstr("--shard with --wire float16: its powers of two"));
  EXPECT_THAT(refusal([](Config& c) { c.runtime.wire_dtype = DType::kFloat64; }),
              HasSubstr("--shard with --wire float64"));
  EXPECT_THAT(refusal([](Config& c) {
                c.shard = "gradients";
                c.accumulation = 2;
              }),
              HasSubstr("--shard gradients with --accumulate 2"));
}

TEST_F(ShardedJobTest, DivergenceEndsAllRanks) {
  Config config = job();
  config.shard = "optimizer";
  config.optimizer = "sgd";
  config.lr = 1e30f;
  config.steps = 20;
  EXPECT_THROW(run_ranks(2, config), DivergedError);
}

}  // namespace
}  // namespace kolo::trainer
