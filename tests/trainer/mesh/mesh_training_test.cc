// Compares whole jobs whose model is split among ranks with one rank that has the whole model.
// Ranks are threads of this process, each with its own runtime.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "tests/trainer/training_job.h"
#include "trainer/mesh/rank_models.h"

namespace kolo::trainer {
namespace {

struct Case {
  const char* name;
  const char* model;
  const char* mesh;
  int ranks;
  std::size_t data = 1;  // number of data ranks of the mesh
  bool tied = true;
};

/// Returns a job of ten steps with 32 samples each, in 4 passes. The last step of an epoch has
/// fewer samples, and is among the ten.
Config mesh_job(const Case& c, const TemporaryDirectory& directory) {
  Config config = small_job(c.model, directory);
  config.optimizer = "sgd";
  config.lr = 0.1f;
  config.clip_norm = 0.5;
  config.steps = 10;
  config.layers = 4;
  config.heads = 4;
  config.tied = c.tied;
  config.dropout = c.model == std::string("gpt") ? 0.1f : 0.0f;
  config.accumulation = 4;
  config.batch = 8 / c.data;
  config.mesh = c.mesh;
  return config;
}

Case on_one_rank(Case c) {
  c.mesh = "auto";
  c.ranks = 1;
  c.data = 1;
  return c;
}

class MeshTrainingTest : public testing::TestWithParam<Case> {
 protected:
  static std::vector<Summary> run(const Case& c, const TemporaryDirectory& directory) {
    return run_ranks(c.ranks, mesh_job(c, directory));
  }

  TemporaryDirectory directory_;
};

// Bound: the mesh adds the same products in another order. A sum of n terms differs by about
// sqrt(n) roundings of 2^-24, with n up to 256, the pixels of an image: 16 · 6e-8 = 1e-6, relative,
// for each gradient. A clipped step of SGD moves the weights by at most lr · clip = 0.05, so ten
// steps differ by 5e-7, and losses whose gradients are below 10 differ by 5e-6. (AdamW would turn
// the rounding of a gradient near zero into a full step, and flips of ReLUs make longer runs
// chaotic.)
constexpr double kBound = 1e-5;

TEST_P(MeshTrainingTest, FollowsOneRankWithTheWholeModel) {
  const Summary whole = run(on_one_rank(GetParam()), directory_)[0];
  const std::vector<Summary> ranks = run(GetParam(), directory_);
  ASSERT_EQ(whole.curve.size(), 10u);
  EXPECT_LT(whole.curve.back().train_loss, 0.999 * whole.curve.front().train_loss);
  for (const Summary& rank : ranks) {
    expect_same_course(rank, whole, kBound);
    EXPECT_EQ(rank.eval_metric, whole.eval_metric);
  }
  expect_equal_weights(ranks);
}

TEST_P(MeshTrainingTest, RanksHaveTheMemoryThatIsPredicted) {
  Config config = mesh_job(GetParam(), directory_);
  config.optimizer = "adamw";
  config.steps = 1;
  const Catalog catalog = built_in_catalog();
  const Task task = make_task(config, catalog);
  const std::vector<Summary> ranks = run_ranks(GetParam().ranks, config);
  const MeshShape shape = parse_mesh(config.mesh, ranks.size());
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const RankLoad load = load_of_rank(config, task, catalog, shape, static_cast<int>(rank));
    EXPECT_EQ(ranks[rank].parameters_per_rank.at(rank), load.parameters);
    EXPECT_EQ(ranks[rank].optimizer_bytes, load.optimizer_bytes);
    EXPECT_EQ(ranks[rank].activation_bytes, load.activation_bytes);
    EXPECT_EQ(ranks[rank].bubble.has_value(), shape.pipeline > 1);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, MeshTrainingTest,
    testing::Values(Case{"gpt_tensor_four", "gpt", "tensor=4", 4},
                    Case{"gpt_untied_tensor", "gpt", "tensor=2", 2, 1, false},
                    Case{"mlp_tensor", "mlp", "tensor=2", 2},
                    Case{"gpt_pipeline_four", "gpt", "pipeline=4", 4},
                    Case{"gpt_untied_pipeline", "gpt", "pipeline=2", 2, 1, false},
                    Case{"mlp_pipeline", "mlp", "pipeline=3", 3},
                    Case{"gpt_data_pipeline", "gpt", "data=2,pipeline=2", 4, 2},
                    Case{"gpt_all", "gpt", "data=2,tensor=2,pipeline=2", 8, 2}),
    [](const auto& tested) { return std::string(tested.param.name); });

const Case kOneRank{"one", "gpt", "auto", 1};
const Case kTensor{"tensor", "gpt", "data=2,tensor=2", 4, 2};
const Case kPipeline{"pipeline", "gpt", "pipeline=2", 2};
const Case kAll{"all", "gpt", "tensor=2,pipeline=2", 4};
const Case kMeshes[] = {kOneRank, kTensor, kPipeline, kAll};

class MeshCheckpointTest : public testing::TestWithParam<Case> {
 protected:
  Config job(const Case& c) {
    Config config = mesh_job(c, directory_);
    config.optimizer = "adamw";
    config.lr = 1e-2f;
    config.weight_average = 0.5f;
    config.run = directory_.path() / "run";
    config.resume = "auto";
    return config;
  }
  /// Takes five steps on the mesh of `c`, and saves a checkpoint.
  void begin_on(const Case& c) {
    Config config = job(c);
    config.stop_after = 5;
    for (const auto& summary :
         run_ranks_until([](int) { return false; }, c.ranks, [&](int) { return config; })) {
      ASSERT_FALSE(summary.has_value());
    }
  }
  Summary whole_run(const Case& c) {
    Config config = job(c);
    config.run.clear();
    config.resume = "no";
    return run_ranks(c.ranks, config)[0];
  }

  TemporaryDirectory directory_;
};

// Wrongly restored weights, moments or means would change all later steps.
TEST_P(MeshCheckpointTest, GoesOnWithTheSameBits) {
  begin_on(GetParam());
  const Summary resumed = run_ranks(GetParam().ranks, job(GetParam()))[0];
  const Summary whole = whole_run(GetParam());
  EXPECT_EQ(resumed.weights_hash, whole.weights_hash);
  EXPECT_EQ(resumed.eval_loss, whole.eval_loss);
}

// Bound: five steps of AdamW from equal state; see kBound, and JobTest for AdamW's 1 %.
TEST_P(MeshCheckpointTest, GoesOnWithTheNextMesh) {
  static const Summary whole = whole_run(kOneRank);
  begin_on(GetParam());
  const auto* const mesh =
      std::ranges::find(kMeshes, std::string_view(GetParam().name), &Case::name);
  const Case& next = kMeshes[(mesh - kMeshes + 1) % std::ssize(kMeshes)];
  SCOPED_TRACE(next.name);
  Config config = job(next);
  config.run.clear();
  config.resume = directory_.path() / "run" / "step-00000005";
  expect_same_course(run_ranks(next.ranks, config)[0], whole, 0.01);
}

// The weights of a run are those of the whole model, and each rank takes its part of such a file.
TEST_P(MeshCheckpointTest, WeightsAreThoseOfTheWholeModel) {
  begin_on(GetParam());
  std::vector<std::uint64_t> hashes;
  for (const Case& other : {kOneRank, kTensor, kAll}) {
    Config config = mesh_job(other, directory_);
    config.weights = directory_.path() / "run" / "step-00000005";
    config.steps = 1;
    config.lr = 1e-30f;
    hashes.push_back(run_ranks(other.ranks, config)[0].weights_hash);
  }
  EXPECT_EQ(hashes, std::vector(3, hashes[0]));
}

INSTANTIATE_TEST_SUITE_P(Meshes, MeshCheckpointTest, testing::ValuesIn(kMeshes),
                         [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace kolo::trainer
