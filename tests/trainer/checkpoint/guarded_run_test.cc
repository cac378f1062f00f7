// Runs that must not go on: their data, checkpoints or folder are not what they were.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "comm/base/error.h"
#include "tests/trainer/checkpoint/resumable_job.h"

namespace kolo::trainer {
namespace {

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

}  // namespace
}  // namespace kolo::trainer
