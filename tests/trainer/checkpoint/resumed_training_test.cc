// Small jobs are stopped and resumed from a checkpoint. Ranks are threads.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "comm/base/error.h"
#include "tests/trainer/checkpoint/resumable_job.h"
#include "trainer/checkpoint/run_folder.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/compute/device.h"
#include "trainer/precision/precision.h"
#include "trainer/tokens/tokenize.h"

namespace kolo::trainer {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

/// Replaces the bytes of the text by tokens, in many files.
void read_tokens(Config& config) {
  const std::filesystem::path folder = config.data.string() + ".tokens";
  if (!std::filesystem::exists(folder)) {
    tokenize({.data = config.data, .out = folder, .vocabulary = 290, .shard_tokens = 100},
             [](const std::string&) {});
  }
  config.data = folder;
  config.batch = 3;
}

void hide_tokens(Config& config) {
  config.task = "masked-tokens";
  config.format = "auto";
  read_tokens(config);
}

struct Case {
  const char* name;
  const char* model;
  const char* optimizer;
  const char* compression;
  void (*change)(Config& config);
};

void nothing(Config&) {}
void scale_losses(Config& config) {
  config.runtime.wire_dtype = DType::kFloat16;
  config.loss_scale = "dynamic";
}
void compute_in_float16(Config& config) { config.precision = "float16"; }
void clip(Config& config) { config.clip_norm = 0.5; }
void look_ahead(Config& config) { config.optimizer_options.nesterov = true; }
void average_weights(Config& config) { config.weight_average = 0.9f; }
void accumulate_and_load_ahead(Config& config) {
  config.accumulation = 2;
  config.batch = 3;
  config.loader_threads = 2;
}
// 203 samples make steps of 24, so step 9 has no samples for one of three ranks.
void join(Config& config) {
  config.uneven = "join";
  config.batch = 8;
}

// The warm-ups end after steps 6 and 9, so that jobs stop before, during and after them.
const Case kCases[] = {
    {"Nesterov", "mlp", "sgd", "none", look_ahead},
    {"Lars", "mlp", "lars", "none", nothing},
    {"Lamb", "mlp", "lamb", "none", nothing},
    {"BatchNorm", "resnet20", "sgd", "none", nothing},
    {"Rows", "matrix-factorization", "adamw", "none", nothing},
    {"RowsWithDropout", "embedding-bag", "sgd", "none", accumulate_and_load_ahead},
    {"Lstm", "lstm", "adamw", "none", nothing},
    {"BertClasses", "bert", "adamw", "none", accumulate_and_load_ahead},
    {"BertMaskedTokens", "bert", "adamw", "none", hide_tokens},
    {"AdamW", "lenet", "adamw", "none", nothing},
    {"WeightAverage", "mlp", "adamw", "none", average_weights},
    {"Joined", "mlp", "sgd", "none", join},
    {"AccumulatedPrefetched", "gpt", "adamw", "none", accumulate_and_load_ahead},
    {"AccumulatedTopK", "mlp", "sgd", "topk(0.01)", accumulate_and_load_ahead},
    {"AdamWClipped", "gpt", "adamw", "none", clip},
    {"Tokens", "gpt", "adamw", "none", read_tokens},
    {"LossScaled", "mlp", "adamw", "none", scale_losses},
    {"Float16", "mlp", "sgd", "fp16", nothing},
    {"Float16Products", "lenet", "adamw", "none", compute_in_float16},
    {"TopKFlat", "mlp", "sgd", "topk(0.01,scope=flat,rule=lossless)", nothing},
    {"TopKMomentum", "mlp", "sgd", "topk(0.02,dgc,warmup=6,ramp=6)", nothing},
    {"TwoBit", "mlp", "sgd", "2bit(0.01,rule=lossless)", nothing},
    {"AdamWInt8", "mlp", "adamw", "int8(warmup=6)", scale_losses},
    {"AdamWTopKLossScaled", "mlp", "adamw", "topk(0.02,warmup=9,rule=lossless)", scale_losses},
};

class ResumedTrainingTest : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!can_compute(parse_precision(job().precision))) {
      GTEST_SKIP() << "oneDNN has no " << job().precision << " products on this processor";
    }
  }
  Config job() const {
    Config config = resumable_job(GetParam().model, directory_);
    config.optimizer = GetParam().optimizer;
    if (config.optimizer == "sgd") config.lr = 0.02f;
    config.runtime.compression = GetParam().compression;
    GetParam().change(config);
    return config;
  }

  TemporaryDirectory directory_;
};

// The cases cover every kind of state: weights, moments, residuals, scale, schedule and data. One
// run is stopped and resumed three times and saves as often as possible. State that is restored
// wrongly would change everything after it.
TEST_P(ResumedTrainingTest, SavesStopsAndGoesOnWithTheSameBits) {
  const Summary whole = run_ranks(kRanks, job())[0];
  Config config = in_run(job(), directory_, "run");
  config.checkpoint_every = 1;
  config.keep = 100;
  const RunFolder folder(config.run);
  std::size_t step = 0;
  for (const std::size_t stop : {1u, 8u, 13u}) {
    SCOPED_TRACE(stop);
    train_until(stop - step, kRanks, config);
    step = stop + 1;
    ASSERT_EQ(folder.steps().front(), step);
  }
  for (const Summary& summary : run_ranks(kRanks, config)) expect_same_training(summary, whole);
  // A checkpoint is skipped while another is being written. All others resume to the same end.
  const std::vector<std::uint64_t> steps = folder.steps();
  EXPECT_EQ(steps.front(), kSteps);
  EXPECT_GE(steps.size(), 4u);
  config.resume = folder.checkpoint(steps[steps.size() / 2]);
  config.run.clear();
  expect_same_training(run_ranks(kRanks, config)[0], whole);
}

INSTANTIATE_TEST_SUITE_P(Cases, ResumedTrainingTest, testing::ValuesIn(kCases),
                         [](const auto& tested) { return std::string(tested.param.name); });

class ResumeTest : public testing::Test {
 protected:
  Config job() const {
    Config config = in_run(resumable_job("mlp", directory_), directory_, "run");
    config.optimizer = "sgd";
    config.lr = 0.02f;
    return config;
  }
  /// Returns the error of a job resumed with one option changed, after eight steps of one rank.
  std::string error_with(const std::function<void(Config&)>& change, int ranks = 1) {
    Config config = job();
    if (RunFolder(config.run).steps().empty()) train_until(8, 1, config);
    change(config);
    return error_of([&] { run_ranks(ranks, config); }, ErrorCode::kConfig);
  }

  TemporaryDirectory directory_;
};

TEST_F(ResumeTest, ARunThatHasEndedStaysAsItIs) {
  const Summary once = run_ranks(2, job())[0];
  // The checkpoint must not be overwritten: a job killed in between would have no checkpoint.
  const auto manifest = RunFolder(job().run).checkpoint(kSteps) / "manifest.json";
  const auto written = std::filesystem::last_write_time(manifest);
  const Summary again = run_ranks(2, job())[0];
  EXPECT_EQ(std::filesystem::last_write_time(manifest), written);
  expect_same_training(again, once);
  EXPECT_EQ(again.samples_per_s, 0.0);
}

TEST_F(ResumeTest, OneRankNeedsNobody) {
  const Config config = job();
  Config plain = config;
  plain.run.clear();
  plain.resume = "no";
  train_until(5, 1, config);
  expect_same_training(run_ranks(1, config)[0], run_ranks(1, plain)[0]);
}

TEST_F(ResumeTest, OtherJobsAreRefusedWithTheOptionThatDiffers) {
  EXPECT_THAT(
      error_with([](Config& c) { c.lr = 0.5f; }),
      AllOf(
          HasSubstr(
              "step-00000009: it belongs to another job: --lr times --lr-scaling is 0.5, and was "),
          HasSubstr("0.02")));
  EXPECT_THAT(error_with([](Config& c) { c.batch = 5; }),
              HasSubstr("--batch times --accumulate times ranks is 5, and was 4"));
  EXPECT_THAT(error_with(
                  [](Config& c) {
                    c.lr_scaling = "linear";
                    c.batch = 2;
                  },
                  2),
              HasSubstr("--lr times --lr-scaling is 0.04"));
  EXPECT_THAT(error_with([](Config& c) { c.steps = 30; }),
              HasSubstr("--steps or --epochs is 30 steps, and was 20 steps"));
  EXPECT_THAT(error_with([](Config& c) { c.optimizer = "adamw"; }),
              HasSubstr("--optimizer is adamw, and was sgd"));
  EXPECT_THAT(error_with([](Config& c) { c.runtime.compression = "fp16"; }),
              HasSubstr("--compression is fp16, and was none"));
  EXPECT_THAT(error_with([](Config& c) { c.runtime.wire_dtype = DType::kFloat16; }),
              HasSubstr("--wire is float16, and was float32"));
  EXPECT_THAT(error_with([](Config& c) { c.hidden = 32; }), HasSubstr("--hidden is 32"));
  EXPECT_THAT(error_with([](Config& c) { c.vocabulary = 50; }),
              HasSubstr("--vocabulary is 50, and was all words"));
}

TEST_F(ResumeTest, ARunIsNotBegunTwiceInOneFolder) {
  EXPECT_THAT(error_with([](Config& c) { c.resume = "no"; }),
              AllOf(HasSubstr("it holds checkpoints of another run, the newest of step 9"),
                    HasSubstr("--resume auto")));
}

TEST_F(ResumeTest, JobsThatMeasureTheirWayAreRefused) {
  EXPECT_THAT(error_with([](Config& c) { c.runtime.compression = "auto"; }),
              HasSubstr("--run: --compression auto(0.01) decides by measured times"));
}

TEST_F(ResumeTest, ATargetEndsAResumedRunWhereItEndsAWholeOne) {
  Config config = job();
  config.eval_every = 4;
  Config plain = config;
  plain.run.clear();
  plain.resume = "no";
  const Summary without = run_ranks(2, plain)[0];
  for (const CurvePoint& point : without.curve) {
    if (point.eval_metric && point.step >= 12 && point.step < kSteps) {
      plain.target = config.target = *point.eval_metric;
    }
  }
  const Summary whole = run_ranks(2, plain)[0];
  ASSERT_GT(whole.steps, 4u);
  ASSERT_LT(whole.steps, kSteps);
  train_until(2, 2, config);
  expect_same_training(run_ranks(2, config)[0], whole);
  expect_same_training(run_ranks(2, config)[0], whole);  // the job has ended, and stays ended
}

TEST_F(ResumeTest, AScheduleThatDoesNotFallLetsARunGrow) {
  Config config = job();
  config.lr_schedule = "constant";
  const Summary short_run = run_ranks(2, config)[0];
  EXPECT_EQ(short_run.steps, 20u);
  config.steps = 30;
  const Summary grown = run_ranks(2, config)[0];
  config.run.clear();
  config.resume = "no";
  EXPECT_EQ(grown.weights_hash, run_ranks(2, config)[0].weights_hash);
}

TEST_F(ResumeTest, ARunDoesNotShrink) {
  Config config = job();
  config.lr_schedule = "constant";
  run_ranks(2, config);
  config.steps = 9;
  EXPECT_THAT(error_of([&] { run_ranks(2, config); }, ErrorCode::kConfig),
              HasSubstr("step-00000020: it is of step 20, and this job ends at step 9: name more"));
}

// Bound: 1 %, as for other numbers of ranks in training_test.cc. After residuals are redistributed,
// top-k may select other elements, so its bound is 10 %.
TEST_F(ResumeTest, OtherNumbersOfRanksGoOnWithTheSameSamples) {
  for (const char* compression : {"none", "topk(0.05)"}) {
    SCOPED_TRACE(compression);
    Config config = in_run(job(), directory_, std::string("run ") + compression);
    config.runtime.compression = compression;
    config.batch = 3;
    Config plain = config;
    plain.run.clear();
    plain.resume = "no";
    const double expected = run_ranks(4, plain)[0].eval_loss;
    train_until(9, 4, config);
    config.batch = 6;
    const std::vector<Summary> fewer = run_ranks(2, config);
    EXPECT_EQ(fewer[0].weights_hash, fewer[1].weights_hash);
    EXPECT_NEAR(fewer[0].eval_loss, expected,
                (compression == std::string("none") ? 0.01 : 0.1) * expected);
    config.resume = RunFolder(config.run).checkpoint(10);
    config.run.clear();
    config.batch = 2;
    EXPECT_NEAR(run_ranks(6, config)[0].eval_loss, expected,
                (compression == std::string("none") ? 0.01 : 0.1) * expected);
    config.batch = 3;
    config.accumulation = 2;
    EXPECT_NEAR(run_ranks(2, config)[0].eval_loss, expected,
                (compression == std::string("none") ? 0.01 : 0.1) * expected);
  }
}

// The job resumes with the means of the running statistics. A network trained on the other number
// of ranks would have the same means if its batches were equal. Bound: statistics affect only the
// held-out loss.
TEST_F(ResumeTest, OtherNumbersOfRanksTakeTheMeansOfRunningStatistics) {
  Config config = in_run(resumable_job("resnet20", directory_), directory_, "run");
  config.batch = 6;
  train_until(kSteps - 2, 2, config);
  const RunFolder folder(config.run);
  const std::vector<std::uint64_t> steps = folder.steps();
  const std::vector<Summary> fewer = run_ranks(2, config);
  config.resume = folder.checkpoint(steps.front());
  config.run.clear();
  config.batch = 4;
  const std::vector<Summary> more = run_ranks(3, config);
  EXPECT_EQ(more[0].weights_hash, more[2].weights_hash);
  EXPECT_NEAR(more[0].eval_loss, fewer[0].eval_loss, 0.1 * fewer[0].eval_loss);
}

TEST_F(ResumeTest, MomentsOfSingleRanksKeepTheirNumberOfRanks) {
  Config config = job();
  config.optimizer = "adamw";
  config.runtime.compression = "topk(0.05)";
  train_until(9, 2, config);
  config.batch = 2;
  EXPECT_THAT(error_of([&] { run_ranks(4, config); }, ErrorCode::kConfig),
              HasSubstr("is the state of one rank and has no meaning on 4 ranks: resume on 2"));
}

TEST_F(ResumeTest, DamagedCheckpointsArePassedOver) {
  Config config = job();
  config.keep = 10;
  for (int stop = 0; stop < 5; ++stop) train_until(2, 2, config);
  const RunFolder folder(config.run);
  const std::vector<std::uint64_t> steps = folder.steps();
  ASSERT_THAT(steps, ElementsAre(15u, 12u, 9u, 6u, 3u));
  const Summary whole = run_ranks(2, config)[0];
  std::filesystem::remove_all(folder.checkpoint(kSteps));

  std::filesystem::remove(folder.checkpoint(steps[0]) / "manifest.json");
  std::filesystem::remove(folder.checkpoint(steps[1]) / "rank-00001.safetensors");
  std::filesystem::resize_file(folder.checkpoint(steps[2]) / "rank-00000.safetensors", 1000);
  {
    std::fstream change(folder.checkpoint(steps[3]) / "rank-00001.safetensors",
                        std::ios::in | std::ios::out | std::ios::binary);
    change.seekp(-1, std::ios::end);
    change.put('\x55');
  }
  testing::internal::CaptureStderr();
  expect_same_training(run_ranks(2, config)[0], whole);
  const std::string log = testing::internal::GetCapturedStderr();
  for (int i = 0; i < 4; ++i) {
    const std::string name = folder.checkpoint(steps[static_cast<std::size_t>(i)]).string();
    EXPECT_THAT(log, HasSubstr(name + " is passed over: " + name));
  }
  EXPECT_THAT(log, AllOf(HasSubstr("its XXH3 sum is"), HasSubstr("1000 bytes, and the manifest")));
  EXPECT_THAT(log, testing::Not(HasSubstr(folder.checkpoint(steps[4]).string())));

  // A damaged checkpoint that is named by its path is an error.
  config.resume = folder.checkpoint(steps[0]);
  EXPECT_THAT(error_of([&] { run_ranks(2, config); }, ErrorCode::kData),
              HasSubstr("manifest.json: No such file"));
}

// From step 6 on, the run's folder is a file, so that nothing can be written there.
TEST_F(ResumeTest, TrainingOutlivesAFolderThatIsLost) {
  Config config = job();
  Config plain = config;
  plain.run.clear();
  plain.resume = "no";
  const Summary whole = run_ranks(2, plain)[0];
  config.checkpoint_every = 2;
  std::size_t asked = 0;
  testing::internal::CaptureStderr();
  const auto summaries = run_ranks_until(
      [&](int rank) {
        if (rank == 0 && ++asked == 6) {
          std::filesystem::rename(config.run, directory_.path() / "moved");
          directory_.write("run", std::string("in the way"));
        }
        return false;
      },
      2, [&](int) { return config; });
  const std::string log = testing::internal::GetCapturedStderr();
  ASSERT_TRUE(summaries[0].has_value());
  EXPECT_EQ(summaries[0]->weights_hash, whole.weights_hash);
  EXPECT_THAT(log, HasSubstr("run/step-00000020"));
  const std::string last = "the checkpoint of step 20 is lost: cannot";
  ASSERT_THAT(log, HasSubstr(last));
  const std::size_t second = log.find(last, log.find(last) + 1);
  EXPECT_EQ(log.find(last, second + 1), std::string::npos) << "one line of each rank: " << log;
  // If a job is asked to stop and cannot save, its exit status says so.
  std::filesystem::remove(config.run);
  EXPECT_THAT(error_of(
                  [&] {
                    run_ranks_until(
                        [&](int rank) {
                          if (rank == 1) return false;
                          std::filesystem::remove_all(config.run);
                          directory_.write("run", std::string("in the way"));
                          return true;
                        },
                        2, [&](int) { return config; });
                  },
                  ErrorCode::kIo),
              HasSubstr("asked to stop after step 2, and no checkpoint of it could be written"));
}

TEST_F(ResumeTest, AFolderThatCannotBeMadeIsAnErrorAtTheStart) {
  const Config config = job();
  directory_.write("run", std::string("in the way"));
  EXPECT_THAT(error_of([&] { run_ranks(2, config); }, ErrorCode::kIo), HasSubstr("run"));
}

}  // namespace
}  // namespace kolo::trainer
