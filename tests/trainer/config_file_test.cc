#include "trainer/loop/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "comm/base/error.h"
#include "comm/base/output_file.h"
#include "tests/support/temporary_directory.h"

namespace kolo::trainer {
namespace {

using test::TemporaryDirectory;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

class ConfigFileTest : public testing::Test {
 protected:
  CommandLine parse_file(const std::string& text, std::vector<std::string> arguments = {}) {
    write_file(file_, text);
    arguments.insert(arguments.begin(), {"kolo-train", "--config", file_});
    std::vector<const char*> pointers;
    for (const std::string& argument : arguments) pointers.push_back(argument.c_str());
    return parse_command_line(static_cast<int>(pointers.size()), pointers.data(),
                              built_in_catalog());
  }

  std::string error_of(const std::string& text, const std::vector<std::string>& arguments = {}) {
    try {
      parse_file(text, arguments);
    } catch (const KoloError& error) {
      return error.what();
    }
    return "no error";
  }

  TemporaryDirectory directory_;
  std::string file_ = (directory_.path() / "job.toml").string();
};

TEST_F(ConfigFileTest, NamesOptionsOfTrainerAndRuntimeAndTheModelThatSetsDefaults) {
  const Config config = parse_file(R"(
    data = "d"        # a comment
    [model]
    model = "lenet"
    [optimizer]
    optimizer = "sgd"
    lr = 0.25
    nesterov = true
    [network]
    wire = "bf16"
  )")
                            .config;
  EXPECT_EQ(config.model, "lenet");
  EXPECT_EQ(config.epochs, 3u) << "a default of lenet";
  EXPECT_EQ(config.lr, 0.25f);
  EXPECT_TRUE(config.optimizer_options.nesterov);
  EXPECT_EQ(config.runtime.wire_dtype, DType::kBFloat16);
}

TEST_F(ConfigFileTest, TheCommandLineGoesFirst) {
  const std::string text = "data = 'd'\nbatch = 8\nmodel = 'lenet'\n";
  const Config config = parse_file(text, {"--batch", "9", "--model", "mlp"}).config;
  EXPECT_EQ(config.batch, 9u);
  EXPECT_EQ(config.model, "mlp");
}

TEST_F(ConfigFileTest, ErrorsNameFileAndLine) {
  EXPECT_THAT(error_of("data = 'd'\nbtach = 3\n"),
              HasSubstr(file_ + ": line 2: no option btach; did you mean batch?"));
  EXPECT_THAT(error_of("data = 'd'\n\nbatch = [1, 2]\n"),
              HasSubstr("line 3: batch must be a text, a number or true or false"));
  EXPECT_THAT(error_of("data = 'd\n"), HasSubstr(file_ + ": line 1: "));
}

TEST_F(ConfigFileTest, TwoKeysOfOneOptionAreAnErrorThatNamesBoth) {
  EXPECT_THAT(error_of("data = 'd'\nbatch = 32\n[a]\nbatch = 16\n"),
              HasSubstr(file_ + ": lines 2 and 4: batch and batch set the same option"));
  EXPECT_THAT(error_of("data = 'd'\nwire-dtype = 'bf16'\nwire = 'f16'\n", {"--wire", "f32"}),
              HasSubstr(file_ + ": lines 2 and 3: wire-dtype and wire set the same option"));
  EXPECT_THAT(error_of("model = 'mlp'\n[a]\nmodel = 'gpt'\n"), HasSubstr("lines 1 and 3: model"));
}

TEST_F(ConfigFileTest, ErrorsOfValuesNameFileAndLineAndOption) {
  const auto expect = [&](const std::string& text, const std::string& error) {
    EXPECT_THAT(error_of("data = 'd'\n" + text), HasSubstr(file_ + ": line " + error)) << text;
  };
  expect("batch = 'many'\n", "2: Could not convert: --batch = many");
  expect("\nbatch = -1\n", "3: --batch: '-1' is negative or too large");
  expect("\nbatch = 0\n", "3: --batch must be at least 1");
  expect("[network]\nfusion-bytes = 'many'\n", "3: --fusion-bytes: 'many'");
  expect("\nwire = 'int4'\n", "3: --wire-dtype: ");
  expect("model = 'lenett'\n", "2: --model: ");
  expect("model = 'gpt'\nshape = 'gpt3'\n", "3: --shape");
  expect("model = 'gpt'\noptimizer = 'adamw'\nmomentum = 0.5\n", "4: --momentum 0.5 belongs to");
  expect("max-length = 0\n", "2: --max-length must be at least 1");
}

TEST_F(ConfigFileTest, AnErrorOfTheCommandLineDoesNotNameTheFile) {
  EXPECT_THAT(error_of("data = 'd'\nbatch = 8\n", {"--batch", "0"}),
              testing::StartsWith("--batch must be at least 1"));
}

TEST_F(ConfigFileTest, SettingsBecomeTheSameJobAgain) {
  const CommandLine first = parse_file("data = 'd'\nlr = 3e-4\nsteps = 70\n",
                                       {"--prompt", "a \"quoted\"\nline", "--weight-decay", ".5"});
  const CommandLine second = parse_file(to_toml(first.settings));
  EXPECT_EQ(common_settings(second.config), common_settings(first.config));
  EXPECT_EQ(second.config.prompt, first.config.prompt);
  EXPECT_EQ(second.config.steps, first.config.steps);
  EXPECT_EQ(second.config.lr, first.config.lr);
  EXPECT_EQ(to_toml(second.settings), to_toml(first.settings));
}

TEST_F(ConfigFileTest, EpochsOfTheCommandLineReplaceTheStepsOfTheFile) {
  const std::string steps = "data = 'd'\nsteps = 70\n", epochs = "data = 'd'\nepochs = 3\n";
  EXPECT_FALSE(parse_file(steps, {"--epochs", "1"}).config.steps);
  EXPECT_FALSE(parse_file(epochs).config.steps);
  EXPECT_EQ(parse_file(epochs, {"--steps", "9"}).config.steps, 9u);
  EXPECT_THAT(error_of(steps + "epochs = 3\n"), HasSubstr("--epochs 3 and --steps 70: only one"));
  EXPECT_EQ(parse_file(steps + "epochs = 1\n").config.steps, 70u) << "as older programs wrote it";
}

TEST_F(ConfigFileTest, SettingsHoldNothingThatBelongsToOneCall) {
  const CommandLine line = parse_file(
      "data = 'd'\nprogress = 'lines'\n",
      {"--json", "a", "--export", "b", "--run", "c", "--resume", "auto", "--stop-after", "7"});
  for (const char* option : {"json", "export", "resume", "stop-after", "progress"}) {
    EXPECT_THAT(line.settings, Not(Contains(testing::Field(&Setting::option, option))));
  }
  EXPECT_THAT(line.settings, Contains(Setting{"run", "c"}));
}

TEST_F(ConfigFileTest, TextsThatLookLikeNumbersStayAsTheyAre) {
  const std::vector<std::string> arguments = {
      "--run",       "2024.10", "--prompt", "007",
      "--tokenizer", "1e3",     "--seed",   "18446744073709551615"};
  const Config config =
      parse_file(to_toml(parse_file("data = '1.50'\n", arguments).settings)).config;
  EXPECT_EQ(config.run, "2024.10");
  EXPECT_EQ(config.prompt, "007");
  EXPECT_EQ(config.tokenizer, "1e3");
  EXPECT_EQ(config.data, "1.50");
  EXPECT_EQ(config.seed, 18446744073709551615u);
  EXPECT_EQ(to_toml({{"lr", "3e-4"}, {"steps", "70"}}), "lr = 0.0003\nsteps = 70\n");
}

TEST_F(ConfigFileTest, SettingsHoldDefaultsOfTheModelAndNothingOfThisRank) {
  const CommandLine line =
      parse_file("data = 'd'\nmodel = 'lenet'\nfusion-bytes = '1M'\n", {"--node-id", "here"});
  EXPECT_THAT(line.settings, Contains(Setting{"epochs", "3"}));
  EXPECT_THAT(line.settings, Not(Contains(testing::Field(&Setting::option, "config"))));
  EXPECT_THAT(line.settings, Not(Contains(testing::Field(&Setting::option, "vocabulary"))));
  const std::vector<Setting> runtime = settings_of(line.config.runtime);
  EXPECT_THAT(runtime, testing::ElementsAre(testing::Field(&Setting::option, "fusion-bytes")));
}

}  // namespace
}  // namespace kolo::trainer
