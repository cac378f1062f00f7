// Runs that must not go on: their data, checkpoints or folder are not what they were.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "comm/base/error.h"
#include "tests/trainer/checkpoint/resumable_job.h"
#include "trainer/checkpoint/run_folder.h"

namespace kolo::trainer {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class GuardedRunTest : public testing::Test {
 protected:
  Config job(const std::string& model = "mlp") const {
    return in_run(resumable_job(model, directory_), directory_, "run");
  }
  static std::string error_of_job(int ranks, const Config& config, ErrorCode code) {
    return error_of([&] { run_ranks(ranks, config); }, code);
  }

  TemporaryDirectory directory_;
};

TEST_F(GuardedRunTest, CheckpointsOfWhichNoneCanBeReadAreAnError) {
  const Config config = job();
  train_until(2, 2, config);
  train_until(2, 2, config);
  const RunFolder folder(config.run);
  ASSERT_THAT(folder.steps(), ElementsAre(6u, 3u));
  std::filesystem::remove(folder.checkpoint(6) / "rank-00001.safetensors");
  std::filesystem::remove(folder.checkpoint(3) / "manifest.json");
  EXPECT_THAT(
      error_of_job(2, config, ErrorCode::kData),
      AllOf(HasSubstr("run: none of its checkpoints can be read; the newest is of step 6: "),
            HasSubstr("name another --run")));
  EXPECT_THAT(folder.steps(), ElementsAre(6u, 3u));
}

TEST_F(GuardedRunTest, AStepToStopAtThatIsReachedIsAnError) {
  Config config = job();
  const auto run = [&] {
    return run_ranks_until([](int) { return false; }, 2, [&](int) { return config; })[1];
  };
  config.stop_after = 5;
  EXPECT_FALSE(run());
  EXPECT_THAT(error_of([&] { run(); }, ErrorCode::kConfig),
              AllOf(HasSubstr("--stop-after 5: "), HasSubstr("is of step 5 already")));
  config.stop_after = 6;
  EXPECT_FALSE(run());
  config.stop_after = kSteps;
  EXPECT_TRUE(run());
  EXPECT_TRUE(run()) << "a run that has ended stays ended";
}

TEST_F(GuardedRunTest, AnotherTextOfEqualLengthIsAnotherJob) {
  const Config config = job("gpt");
  train_until(3, 1, config);
  std::string text = small_text(3000);
  text[1000] = '!';
  directory_.write("text", text);
  EXPECT_THAT(error_of_job(1, config, ErrorCode::kConfig), HasSubstr("the text of --data is "));
  const std::filesystem::path other = directory_.write("other", small_text(3000));
  EXPECT_THAT(error_of(
                  [&] {
                    run_ranks(2, [&](int rank) {
                      Config own = resumable_job("gpt", directory_);
                      directory_.write("text", text);
                      if (rank == 1) own.data = other;
                      return own;
                    });
                  },
                  ErrorCode::kMismatch),
              HasSubstr("the texts of --data of rank 1 differ from those of rank 0"));
}

TEST_F(GuardedRunTest, TwoJobsDoNotShareAFolder) {
  const Config config = job();
  std::string refusal;
  run_ranks_until(
      [&](int) {
        if (refusal.empty()) refusal = error_of_job(1, config, ErrorCode::kIo);
        return false;
      },
      1, [&](int) { return config; });
  EXPECT_THAT(refusal, AllOf(HasSubstr("run/.lock: another job has this folder: process " +
                                       std::to_string(::getpid()) + " of "),
                             HasSubstr("name another --run")));
  run_ranks(1, config);
}

// Rank 0 removes the first attempt, which takes a moment, because a folder with many files is in
// the place of rank 1's file.
TEST_F(GuardedRunTest, ALastCheckpointIsTriedAgainWhenTheFailedOneIsGone) {
  Config config = job();
  config.checkpoint_every = kSteps;
  const RunFolder folder(config.run);
  std::size_t asked = 0;
  testing::internal::CaptureStderr();
  const auto summaries = run_ranks_until(
      [&](int rank) {
        if (rank == 0 && ++asked == kSteps - 1) {
          const std::string name =
              std::filesystem::relative(folder.partial(kSteps), directory_.path()).string();
          for (int i = 0; i < 4000; ++i) {
            directory_.write(name + "/" + rank_file_name(1) + "/" + std::to_string(i), Bytes{});
          }
        }
        return false;
      },
      2, [&](int) { return config; });
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("the checkpoint of step 20 is lost"));
  ASSERT_TRUE(summaries[1].has_value());
  EXPECT_TRUE(summaries[1]->is_saved);
  EXPECT_THAT(folder.steps(), ElementsAre(kSteps));
}

}  // namespace
}  // namespace kolo::trainer
