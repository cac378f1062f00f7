#include "trainer/checkpoint/run_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "comm/base/error.h"
#include "tests/trainer/small_data.h"
#include "trainer/checkpoint/job_identity.h"

namespace kolo::trainer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class RunFolderTest : public testing::Test {
 protected:
  void publish(std::uint64_t step, std::optional<double> eval_loss = std::nullopt) {
    folder_.create_partial(step);
    Manifest manifest{.step = step, .job = {"toy", {}}, .eval_loss = eval_loss, .files = {}};
    manifest.files.push_back(
        {rank_file_name(0), write_safetensors(folder_.partial(step) / rank_file_name(0), {}, {})});
    folder_.publish(manifest);
  }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
      found.push_back(entry.path().filename().string());
    }
    std::ranges::sort(found);
    return found;
  }

  TemporaryDirectory directory_;
  RunFolder folder_{directory_.path() / "run"};
};

TEST_F(RunFolderTest, ListsCompleteCheckpointsNewestFirst) {
  EXPECT_TRUE(folder_.steps().empty());
  publish(20);
  publish(100'000'000);
  publish(3);
  folder_.create_partial(50);
  directory_.write("run/step-x/file", std::string("x"));
  directory_.write("run/step-20/file", std::string("somebody's copy"));
  EXPECT_THAT(folder_.steps(), ElementsAre(100'000'000u, 20u, 3u));
  EXPECT_EQ(folder_.checkpoint(3).filename(), "step-00000003");
}

TEST_F(RunFolderTest, ClearsWhatWasLeftAndNothingElse) {
  publish(1);
  folder_.create_partial(2);
  directory_.write("run/step-00000001.old.partial/file", std::string("x"));
  directory_.write("run/notes.partial", std::string("mine"));
  folder_.clear();
  EXPECT_THAT(names(), ElementsAre("notes.partial", "step-00000001"));
}

// A job that is killed while it replaces a checkpoint leaves both under other names.
TEST_F(RunFolderTest, AReplacedCheckpointReturnsUnlessTheNewOneIsThere) {
  publish(4, 0.5);
  std::filesystem::rename(folder_.checkpoint(4), folder_.checkpoint(4) += ".old.partial");
  folder_.create_partial(4);
  directory_.write("run/step-00000005.old.partial/file", std::string("no checkpoint"));
  folder_.clear();
  EXPECT_THAT(names(), ElementsAre("step-00000004"));
  EXPECT_EQ(read_manifest(folder_.checkpoint(4)).eval_loss, 0.5);
}

TEST_F(RunFolderTest, AManifestComesBackAsItWas) {
  const Manifest manifest{.step = 7,
                          .job = {"gpt", {{"--lr", "0.003"}, {"--seed", "1"}}},
                          .eval_loss = 0.1,
                          .files = {{rank_file_name(0), {12, 0xfedcba9876543210u}}}};
  directory_.write("manifest.json", to_json(manifest));
  EXPECT_EQ(read_manifest(directory_.path()), manifest);
}

TEST_F(RunFolderTest, ReplacesAnOlderCheckpointOfTheSameStep) {
  publish(4, 0.5);
  publish(4, 0.25);
  EXPECT_EQ(read_manifest(folder_.checkpoint(4)).eval_loss, 0.25);
  EXPECT_THAT(names(), ElementsAre("step-00000004"));
}

TEST_F(RunFolderTest, PublishesNothingThatIsNotThere) {
  const auto error_with = [&](std::uint64_t bytes) {
    Manifest manifest{.step = 4, .job = {}, .eval_loss = {}, .files = {}};
    manifest.files.push_back({rank_file_name(0), {.bytes = bytes, .xxh3 = 0}});
    return error_of([&] { folder_.publish(manifest); }, ErrorCode::kIo);
  };
  EXPECT_THAT(error_with(5), HasSubstr("all nodes must share the folder"));
  directory_.write("run/step-00000004.partial/rank-00000.safetensors", std::string("abc"));
  EXPECT_THAT(error_with(5), HasSubstr("3 of 5 bytes are there"));
  EXPECT_TRUE(folder_.steps().empty());
}

TEST_F(RunFolderTest, KeepsTheNewestAndTheBest) {
  publish(1, 0.9);
  publish(2, 0.3);
  publish(3);
  publish(4, 0.7);
  publish(5);
  std::filesystem::remove(folder_.checkpoint(3) / "manifest.json");  // a checkpoint without a
                                                                     // manifest cannot be the best
  folder_.prune(5, 2);
  EXPECT_THAT(folder_.steps(), ElementsAre(5u, 4u, 2u));
  folder_.prune(5, 1);
  EXPECT_THAT(folder_.steps(), ElementsAre(5u, 2u));
  publish(6, 0.1);
  folder_.prune(6, 1);
  EXPECT_THAT(folder_.steps(), ElementsAre(6u));
}

// A run may have resumed from an earlier step because later checkpoints are damaged.
TEST_F(RunFolderTest, WhatIsLaterThanTheNewestTakesNoPlace) {
  publish(8);
  publish(9);
  publish(3);
  publish(4);
  folder_.prune(4, 1);
  EXPECT_THAT(folder_.steps(), ElementsAre(9u, 8u, 4u));
}

TEST_F(RunFolderTest, ErrorsNameThePath) {
  const RunFolder file(directory_.write("plain", std::string("x")));
  EXPECT_THAT(error_of([&] { file.create_partial(1); }, ErrorCode::kIo),
              HasSubstr("plain/step-00000001.partial"));
  EXPECT_THROW(file.steps(), KoloError);
}

TEST(JobIdentityTest, NamesTheSettingThatDiffers) {
  const JobIdentity saved{"gpt", {{"--lr", "1"}, {"--seed", "4"}}};
  EXPECT_EQ(describe_other_job(saved, saved), "");
  EXPECT_EQ(describe_other_job(saved, {"mlp", saved.settings}), "--model is mlp, and was gpt");
  EXPECT_EQ(describe_other_job(saved, {"gpt", {{"--lr", "2"}, {"--seed", "5"}}}),
            "--lr is 2, and was 1");
  EXPECT_EQ(describe_other_job(saved, {"gpt", {{"--lr", "1"}}}), "--seed is not set, and was 4");
  EXPECT_EQ(describe_other_job({"gpt", {}}, saved), "--lr is 1, and was not set");
}

TEST(JobIdentityTest, OlderCheckpointsAreOfAnyText) {
  const JobIdentity old{"gpt", {}}, other{"gpt", {{kTextSetting, "7"}}};
  EXPECT_EQ(describe_other_job(old, other), "");
  EXPECT_EQ(describe_other_job({"gpt", {{kTextSetting, "8"}}}, other),
            "the text of --data is 7, and was 8");
}

}  // namespace
}  // namespace kolo::trainer
