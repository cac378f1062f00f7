// Jobs with sharded optimizer state are stopped and resumed, on equally many ranks or others, with
// or without shards. Ranks are threads.

#include <gtest/gtest.h>

#include <cstddef>
#include <filesystem>
#include <string>

#include "tests/trainer/checkpoint/resumable_job.h"
#include "trainer/checkpoint/run_folder.h"

namespace kolo::trainer {
namespace {

struct ResumeCase {
  const char* model;
  const char* optimizer;
  DType wire = DType::kFloat32;
};

class ShardedResumeTest : public testing::TestWithParam<ResumeCase> {
 protected:
  /// Number of samples of all ranks in a step, for any number of ranks.
  static constexpr std::size_t kGlobalBatch = 12;

  Config job(int ranks, const std::string& shard) const {
    Config config = resumable_job(GetParam().model, directory_);
    config.optimizer = GetParam().optimizer;
    config.optimizer_options.weight_decay = 0.1f;
    config.clip_norm = 0.5;
    config.batch = kGlobalBatch / static_cast<std::size_t>(ranks);
    config.runtime.fusion_bytes = 4096;
    config.runtime.wire_dtype = GetParam().wire;
    config.shard = shard;
    return config;
  }
  /// Returns the checkpoint of a job that stops after nine steps.
  std::filesystem::path stop(int ranks, const std::string& shard) {
    const Config config = in_run(job(ranks, shard), directory_, shard + std::to_string(ranks));
    train_until(8, ranks, config);
    return RunFolder(config.run).checkpoint(9);
  }
  Summary resume(const std::filesystem::path& checkpoint, int ranks, const std::string& shard) {
    Config config = job(ranks, shard);
    config.resume = checkpoint;
    return run_ranks(ranks, config)[0];
  }

  TemporaryDirectory directory_;
};

TEST_P(ShardedResumeTest, GoesOnWithTheSameBitsWithShardsOrWithout) {
  const Summary whole = run_ranks(kRanks, job(kRanks, "none"))[0];
  for (const auto& [saved, resumed] :
       {std::pair("none", "gradients"), {"optimizer", "none"}, {"gradients", "optimizer"}}) {
    SCOPED_TRACE(saved);
    expect_same_training(resume(stop(kRanks, saved), kRanks, resumed), whole);
  }
}

// Shards are divided anew. Sums over another number of ranks have other roundings, so the reference
// is a resumed job without shards.
TEST_P(ShardedResumeTest, GoesOnWithOtherNumbersOfRanks) {
  const auto with_shards = stop(kRanks, "optimizer");
  const auto without = stop(kRanks, "none");
  for (const int ranks : {1, 2, 4}) {
    SCOPED_TRACE(ranks);
    const Summary expected = resume(without, ranks, "none");
    expect_same_training(resume(with_shards, ranks, "optimizer"), expected);
    expect_same_training(resume(with_shards, ranks, "none"), expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ShardedResumeTest,
                         testing::Values(ResumeCase{"lenet", "adamw"},
                                         ResumeCase{"mlp", "lars", DType::kBFloat16},
                                         ResumeCase{"matrix-factorization", "adamw"}),
                         [](const auto& tested) {
                           std::string name = tested.param.model;
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace kolo::trainer
