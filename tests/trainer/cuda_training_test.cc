// Compares whole jobs on a GPU with the same jobs on the processor. They have one rank, because
// NCCL does not connect two ranks of one process on one GPU.

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "comm/device/cuda_device.h"
#include "tests/trainer/training_job.h"
#include "trainer/tokens/tokenize.h"

namespace kolo::trainer {
namespace {

class CudaTrainingTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const CudaAvailability found = find_cuda_devices();
    if (found.device_count == 0) GTEST_SKIP() << "no CUDA device: " << found.reason;
    const bool has_byte_pairs = GetParam() == std::string("gpt_of_byte_pairs");
    config_ = small_job(has_byte_pairs ? "gpt" : GetParam(), directory_);
    if (has_byte_pairs) {
      const std::filesystem::path tokens = directory_.path() / "tokens";
      tokenize({.data = config_.data, .out = tokens, .vocabulary = 290}, [](const std::string&) {});
      config_.data = tokens;
    }
    config_.steps = 20;
    config_.batch = 12;
  }

  /// A bound of the difference of two courses. Batch norm over 12 images passes errors on to all of
  /// them, which a factor of 3 allows for.
  double share(double bound) const {
    return GetParam() == std::string("resnet20") ? 3.0 * bound : bound;
  }

  Summary run_on(const std::string& device, const Config& config) {
    Config changed = config;
    changed.runtime.device = device;
    return run_ranks(1, changed)[0];
  }

  TemporaryDirectory directory_;
  Config config_;
};

// Bound: 1 %, as in training_test.cc, where the order of float32 sums differs too.
TEST_P(CudaTrainingTest, FollowsTheProcessorInFloat32) {
  const Summary cuda = run_on("cuda", config_);
  EXPECT_EQ(cuda.device, "cuda");
  EXPECT_EQ(cuda.precision, "float32");
  expect_same_course(cuda, run_on("cpu", config_), share(0.01));
}

TEST_P(CudaTrainingTest, PassesAddUpAsOnTheProcessor) {
  config_.batch = 4;
  config_.accumulation = 3;
  const Summary cuda = run_on("cuda", config_);
  expect_same_course(cuda, run_on("cpu", config_), share(0.01));
  config_.cuda_graph = true;
  EXPECT_EQ(run_on("cuda", config_).weights_hash, cuda.weights_hash);
}

// Bound: operands and activations are rounded to 8 bits (relative 2^-9) 10 to 15 times in
// succession through a model and back, at random: 1 % of a gradient. AdamW turns that into full
// steps if a gradient is smaller than its error. Losses after 20 steps differ by less than 10 %.
TEST_P(CudaTrainingTest, FollowsTheProcessorInBFloat16) {
  const Summary cpu = run_on("cpu", config_);
  config_.precision = "bfloat16";
  const Summary cuda = run_on("cuda", config_);
  EXPECT_EQ(cuda.precision, "bfloat16");
  expect_same_course(cuda, cpu, share(0.10));
  config_.gradients = "bfloat16";
  expect_same_course(run_on("cuda", config_), cpu, share(0.10));
}

// Bound: 11 bits instead of 8, an eighth of the error above; 5 % allows for AdamW's steps. With the
// scale, gradients of a mean over 12 images or 144 bytes are normal numbers of float16.
TEST_P(CudaTrainingTest, FollowsTheProcessorInFloat16) {
  const Summary cpu = run_on("cpu", config_);
  config_.precision = "float16";
  config_.loss_scale = "512";
  const Summary cuda = run_on("cuda", config_);
  EXPECT_EQ(cuda.skipped_steps, 0u);
  EXPECT_EQ(cuda.loss_scale, 512.0);
  expect_same_course(cuda, cpu, share(0.05));
}

// Skipped steps halve the scale, and training continues.
TEST_P(CudaTrainingTest, ADynamicScaleFindsItsWay) {
  config_.steps = 40;
  config_.loss_scale = "dynamic";
  config_.precision = "float16";
  const Summary summary = run_on("cuda", config_);
  EXPECT_EQ(summary.loss_scale, 65536.0 / static_cast<double>(1u << summary.skipped_steps));
  EXPECT_LT(summary.train_loss, summary.curve.front().train_loss);
}

// One rank owns all shards, whose arrays have another order.
TEST_P(CudaTrainingTest, ShardsChangeNoBitUnlessGradientsAreClipped) {
  config_.clip_norm = 0.0;
  for (const char* gradients : {"float32", "bfloat16"}) {
    config_.precision = gradients;
    config_.gradients = gradients;
    config_.shard = "none";
    const Summary whole = run_on("cuda", config_);
    config_.shard = "optimizer";
    EXPECT_EQ(run_on("cuda", config_).weights_hash, whole.weights_hash);
  }
}

// The processor goes on from the device's checkpoint, and the device from the processor's. Bound:
// that of FollowsTheProcessorInFloat32.
TEST_P(CudaTrainingTest, GoesOnFromACheckpointOfEitherDevice) {
  const Summary whole = run_on("cuda", config_);
  for (const char* first : {"cuda", "cpu"}) {
    for (const char* second : {"cuda", "cpu"}) {
      SCOPED_TRACE(std::string(first) + ", then " + second);
      Config config = config_;
      config.run = (directory_.path() / (std::string(first) + "-" + second)).string();
      config.stop_after = 10;
      config.runtime.device = first;
      run_ranks_until([](int) { return false; }, 1, [&](int) { return config; });
      config.stop_after.reset();
      config.resume = "auto";
      const Summary resumed = run_on(second, config);
      EXPECT_EQ(resumed.steps, whole.steps);
      if (first == std::string("cuda") && second == std::string("cuda")) {
        EXPECT_EQ(resumed.weights_hash, whole.weights_hash);
      }
      expect_same_course(resumed, whole, share(0.01));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, CudaTrainingTest,
                         testing::Values("mlp", "lenet", "convnet", "resnet20", "gpt",
                                         "gpt_of_byte_pairs"),
                         [](const auto& tested) { return std::string(tested.param); });

}  // namespace
}  // namespace kolo::trainer
