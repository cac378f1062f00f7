#include "trainer/loop/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "comm/base/error.h"
#include "tests/trainer/small_data.h"
#include "trainer/loop/learner.h"

namespace kolo::trainer {
namespace {

using testing::HasSubstr;
using namespace std::chrono_literals;

CommandLine parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "kolo-train");
  return parse_command_line(static_cast<int>(arguments.size()), arguments.data(),
                            built_in_catalog());
}

ErrorCode code_of(const std::vector<const char*>& arguments, const std::string& part) {
  try {
    parse(arguments);
  } catch (const KoloError& error) {
    EXPECT_THAT(error.what(), HasSubstr(part));
    return error.error().code;
  }
  ADD_FAILURE() << "no error";
  return ErrorCode::kInternal;
}

TEST(CommandLineTest, ModelDecidesDefaultsAndOptionsOverrideThem) {
  EXPECT_EQ(parse({"--data", "d"}).config.model, "gpt");
  const Config lenet = parse({"--data", "d", "--model", "lenet"}).config;
  EXPECT_EQ(lenet.epochs, 3u);
  EXPECT_FALSE(lenet.steps);
  const Config changed =
      parse({"--model=lenet", "--data=d", "--steps=7", "--batch", "9", "--lr", "0.5"}).config;
  EXPECT_EQ(changed.steps, 7u);
  EXPECT_EQ(changed.batch, 9u);
  EXPECT_EQ(changed.lr, 0.5f);
}

// Nothing that a user asks for is ignored; what equals its default asks for nothing.
TEST(CommandLineTest, AnOptionThatNothingInTheJobReadsIsAUsageError) {
  const std::vector<std::vector<const char*>> ignored = {
      {"--model", "lenet", "--dropout", "0.5"},
      {"--model", "lenet", "--positions", "rotary"},
      {"--model", "lenet", "--sync-batch-norm", "on"},
      {"--model", "resnet20", "--hidden", "77"},
      {"--model", "matrix-factorization", "--max-length", "77"},
      {"--model", "matrix-factorization", "--label-smoothing", "0.5"},
      {"--model", "gpt", "--hidden", "77"},
      {"--model", "gpt", "--optimizer", "adamw", "--momentum", "0.5"},
      {"--model", "gpt", "--optimizer", "lars", "--nesterov", "on"},
      {"--model", "gpt", "--optimizer", "sgd", "--beta2", "0.5"},
  };
  for (std::vector<const char*> arguments : ignored) {
    const std::string option = arguments[arguments.size() - 2], value = arguments.back();
    arguments.insert(arguments.end(), {"--data", "d"});
    EXPECT_EQ(code_of(arguments, option + " " + value + " belongs to --"), ErrorCode::kUsage);
  }
  EXPECT_EQ(
      code_of({"--data", "d", "--model", "lenet", "--dropout", "0.5"},
              "belongs to --model embedding-bag, lstm, gpt, bert; this job has --model lenet"),
      ErrorCode::kUsage);
  parse({"--data", "d", "--model", "lenet", "--dropout", "0", "--momentum", "0.9"});
  parse({"--data", "d", "--model", "gpt", "--optimizer", "sgd", "--momentum", "0.5"});
}

TEST(CommandLineTest, AnOptionThatTheFormatOfTheDataDoesNotReadIsAUsageError) {
  const std::vector<std::vector<const char*>> ignored = {
      {"--model", "lstm", "--format", "trec", "--text-column", "a"},
      {"--model", "lstm", "--format", "imdb", "--label-column", "a"},
      {"--model", "lstm", "--format", "csv", "--context", "77"},
      {"--model", "gpt", "--format", "text", "--max-length", "77"},
      {"--model", "gpt", "--format", "tokens", "--min-count", "77"},
      {"--model", "bert", "--format", "words", "--context", "77"},
      {"--model", "bert", "--format", "tokens", "--vocabulary", "777"},
      // Found by the files.
      {"--model", "bert", "--data", ".", "--task", "masked-tokens", "--text-column", "a"},
      {"--model", "gpt", "--data", ".", "--vocabulary", "777"},
  };
  for (std::vector<const char*> arguments : ignored) {
    const std::string option = arguments[arguments.size() - 2], value = arguments.back();
    if (arguments[2] != std::string("--data")) arguments.insert(arguments.end(), {"--data", "d"});
    EXPECT_EQ(code_of(arguments, option + " " + value + " belongs to --"), ErrorCode::kUsage);
  }
  EXPECT_EQ(code_of({"--data", "d", "--model", "lstm", "--format", "trec", "--text-column", "a"},
                    "belongs to --format csv, tsv, jsonl; this job has --model lstm, --task "
                    "text-classification, --optimizer adamw, --format trec, and"),
            ErrorCode::kUsage);
  parse({"--data", "d", "--model", "lstm", "--format", "jsonl", "--text-column", "a"});
  parse({"--data", "d", "--model", "lstm", "--text-column", "a", "--max-length", "7"});
  parse({"--data", "d", "--model", "bert", "--format", "tokens", "--max-length", "77"});
  parse({"--data", "d", "--model", "gpt", "--format", "tokens", "--context", "77"});
}

TEST(CommandLineTest, AShapeSetsDefaultsAndOptionsOverrideThem) {
  const Config config = parse({"--data", "d", "--shape", "gpt2", "--context", "256"}).config;
  EXPECT_EQ(config.layers, 12u);
  EXPECT_EQ(config.width, 768u);
  EXPECT_EQ(config.heads, 12u);
  EXPECT_EQ(config.context, 256u);
  EXPECT_EQ(config.lr, 6e-4f);
  EXPECT_EQ(code_of({"--data", "d", "--shape", "gpt3"}, "did you mean gpt2?"), ErrorCode::kUsage);
  EXPECT_EQ(code_of({"--data", "d", "--model", "mlp", "--shape", "gpt2"},
                    "--shape gpt2: --model mlp has no shapes"),
            ErrorCode::kConfig);
}

TEST(CommandLineTest, RuntimeOptionsArriveInTheirUnits) {
  const Options o =
      parse({"--data", "d", "--fusion-bytes", "2M", "--chunk-bytes", "64K", "--wire", "bf16",
             "--algorithm", "ring", "--node-id", "b", "--peer-timeout", "3000", "--spin", "20"})
          .config.runtime;
  EXPECT_EQ(o.fusion_bytes, std::size_t{2} << 20);
  EXPECT_EQ(o.chunk_bytes, std::size_t{64} << 10);
  EXPECT_EQ(o.wire_dtype, DType::kBFloat16);
  EXPECT_EQ(o.algorithm, "ring");
  EXPECT_EQ(o.node_id, "b");
  EXPECT_EQ(o.peer_timeout, 3s);
  EXPECT_EQ(o.spin, 20us);
}

TEST(CommandLineTest, UntouchedRuntimeOptionsKeepTheirDefaults) {
  EXPECT_EQ(parse({"--data", "d"}).config.runtime, Options{});
}

TEST(CommandLineTest, PrecisionDecidesTheLossScaleUnlessToldOtherwise) {
  using Mode = LossScaler::Mode;
  const auto scale_of = [](std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), {"--data", "d"});
    return update_options(parse(arguments).config).loss_scale;
  };
  EXPECT_EQ(scale_of({}).mode, Mode::kOff);
  EXPECT_EQ(scale_of({"--precision", "bf16"}).mode, Mode::kOff);
  EXPECT_EQ(scale_of({"--precision", "float16"}).mode, Mode::kDynamic);
  EXPECT_EQ(scale_of({"--precision", "float16", "--loss-scale", "off"}).mode, Mode::kOff);
  EXPECT_EQ(scale_of({"--loss-scale", "dynamic"}).mode, Mode::kDynamic);
  EXPECT_EQ(scale_of({"--loss-scale", "512"}).scale, 512.0f);
}

TEST(CommandLineTest, GraphsAreOnOrOff) {
  EXPECT_FALSE(parse({"--data", "d"}).config.cuda_graph);
  EXPECT_TRUE(parse({"--data", "d", "--cuda-graph", "on"}).config.cuda_graph);
  EXPECT_FALSE(parse({"--data", "d", "--cuda-graph", "off"}).config.cuda_graph);
  EXPECT_EQ(code_of({"--data", "d", "--cuda-graph", "often"}, "--cuda-graph"), ErrorCode::kUsage);
}

TEST(CommandLineTest, TheDeviceIsAnOptionOfTheRuntime) {
  EXPECT_EQ(parse({"--data", "d"}).config.runtime.device, "cpu");
  EXPECT_EQ(parse({"--data", "d", "--device", "cuda:1"}).config.runtime.device, "cuda:1");
}

TEST(CommandLineTest, HelpNamesUnitsAndDefaults) {
  const std::string help = parse({"--help"}).text.value();
  EXPECT_THAT(help, HasSubstr("--fusion-bytes"));
  EXPECT_THAT(help, HasSubstr("BYTES"));
  EXPECT_THAT(help, HasSubstr("--peer-timeout MS=8000"));
  EXPECT_THAT(help, HasSubstr("--cuda-graph on|off=off"));
  // Everything that can be chosen is named, as wrapped lines allow to find it.
  for (const char* name : {"mlp:", "lenet:", "language-model:", "cifar10:", "adamw:", "cosine:"}) {
    EXPECT_THAT(help, HasSubstr(name));
  }
}

TEST(CommandLineTest, MistakesAreUsageErrors) {
  EXPECT_EQ(code_of({"--data", "d", "--bacth", "3"}, "--bacth"), ErrorCode::kUsage);
  EXPECT_EQ(code_of({"--data", "d", "--batch", "x"}, "--batch"), ErrorCode::kUsage);
  EXPECT_EQ(code_of({}, "--data"), ErrorCode::kUsage);
}

TEST(CommandLineTest, ValuesThatCannotBeUsedAreConfigurationErrors) {
  const auto expect = [](const char* option, const char* value, const char* part) {
    EXPECT_EQ(code_of({"--data", "d", option, value}, part), ErrorCode::kConfig) << option;
  };
  expect("--loss-scale", "on", "--loss-scale: 'on' is not auto, off, dynamic or a number");
  expect("--loss-scale", "-8", "--loss-scale: '-8' is not auto, off, dynamic or a number");
  expect("--heads", "0", "--width and --heads must be at least 1");
  expect("--dropout", "1", "--dropout must be at least 0 and below 1");
  expect("--batch", "0", "--batch must be at least 1");
  expect("--max-length", "0", "--max-length must be at least 1");
  expect("--vocabulary", "2", "--vocabulary must be at least 3");
  expect("--weights-part", "shared", "--weights-part shared: needs --weights FILE");
  expect("--loader-threads", "65", "--loader-threads must be at most 64");
  expect("--accumulate", "0", "--accumulate must be at least 1");
  expect("--keep", "0", "--keep must be at least 1");
  expect("--checkpoint-every", "10", "--checkpoint-every: needs --run DIR");
  expect("--resume", "auto", "--resume auto: needs --run DIR");
  expect("--label-smoothing", "1", "--label-smoothing must be at least 0 and below 1");
  expect("--momentum", "1", "--momentum must be at least 0 and below 1");
  expect("--beta1", "-0.1", "--beta1 must be at least 0 and below 1");
  expect("--beta2", "1", "--beta2 must be at least 0 and below 1");
  expect("--epsilon", "0", "--epsilon must be greater than 0");
  expect("--weight-decay", "-1", "--weight-decay must not be negative");
  for (const char* option :
       {"--lr", "--clip-norm", "--weight-decay", "--epsilon", "--temperature"}) {
    for (const char* value : {"inf", "nan"}) {
      expect(option, value, (std::string(option) + " must be a finite number").c_str());
    }
  }
  expect("--weight-average", "1", "--weight-average must be at least 0 and below 1");
  expect("--target", "nan", "--target must be a finite number");
  expect("--decay-rules", "b", "--decay-rules: 'b' is not PATTERN=NUMBER");
  expect("--momentum", "nan", "--momentum must be at least 0 and below 1");
  expect("--final-lr-share", "nan", "--final-lr-share must be between 0 and 1");
  expect("--hidden", "0", "--hidden must be at least 1");
  expect("--context", "0", "--layers and --context must be at least 1");
  expect("--peer-timeout", "soon", "--peer-timeout: ");
}

TEST(CommandLineTest, UnknownChoicesAreUsageErrorsWithTheNearestName) {
  const auto expect = [](const char* option, const char* value, const char* part) {
    EXPECT_EQ(code_of({"--data", "d", option, value}, part), ErrorCode::kUsage) << option;
  };
  expect("--bacth", "3", "did you mean --batch?");
  expect("--model", "lnet",
         "--model: 'lnet' is not mlp, lenet, convnet, resnet20, resnet18, embedding-bag, lstm, "
         "matrix-factorization, gpt or bert; did you mean lenet?");
  expect("--compression", "top-k", "did you mean topk?");
  expect("--precision", "float64", "--precision: 'float64' is not float32, bfloat16 or float16");
  expect("--wire", "int8", "--wire-dtype: 'int8'");
  expect("--gradients", "float16", "--gradients: 'float16' is not auto, float32 or bfloat16");
  expect("--augment", "mirror,corp", "did you mean crop?");
  expect("--optimizer", "adam", "did you mean adamw?");
  expect("--lr-schedule", "cosin", "did you mean cosine?");
  expect("--lr-scaling", "quadratic", "--lr-scaling: ");
  expect("--positions", "rotated", "--positions: 'rotated' is not learned or rotary");
  expect("--task", "language", "did you mean language-model?");
  expect("--format", "cifar", "did you mean cifar10?");
}

TEST(ConfigTest, WhatNoModelOnAGpuOffersIsRefusedByName) {
  const auto expect = [](const std::string& option, void (*change)(Config&)) {
    Config config = default_config(built_in_catalog(), "gpt");
    require_offered_on_gpus(config);
    change(config);
    EXPECT_THAT(error_of([&] { require_offered_on_gpus(config); }, ErrorCode::kConfig),
                HasSubstr(option + ": needs --device cpu"));
  };
  expect("--dropout", [](Config& c) { c.dropout = 0.1f; });
  expect("--positions", [](Config& c) { c.positions = "rotary"; });
  expect("--tied off", [](Config& c) { c.tied = false; });
  expect("--weights", [](Config& c) { c.weights = "file"; });
}

TEST(ConfigTest, TheLearningRateFollowsTheRanksIfAsked) {
  Config config = default_config(built_in_catalog(), "mlp");
  config.lr = 0.5f;
  EXPECT_EQ(peak_lr(config, 4), 0.5f);
  config.lr_scaling = "linear";
  EXPECT_EQ(peak_lr(config, 4), 2.0f);
  config.lr_scaling = "sqrt";
  EXPECT_EQ(peak_lr(config, 4), 1.0f);
}

// Of 600 steps of two ranks with 16 samples in two passes each, three tenths.
TEST(ConfigTest, EvaluationsTakeATenthOfTheTimeOfTraining) {
  Config config = default_config(built_in_catalog(), "gpt");
  config.batch = 16;
  config.accumulation = 2;
  EXPECT_EQ(evaluation_samples(config, 20000, 600, 2), 11520u);
  EXPECT_EQ(evaluation_samples(config, 9000, 600, 2), 9000u);
  config.eval_samples = 0;
  EXPECT_EQ(evaluation_samples(config, 20000, 1, 2), 20000u);
  config.eval_samples = 65;
  EXPECT_EQ(evaluation_samples(config, 20000, 600, 2), 65u);
  EXPECT_EQ(evaluation_samples(config, 7, 600, 2), 7u);
}

TEST(ConfigTest, CommonSettingsHoldWhatDecidesTraining) {
  const Config config = default_config(built_in_catalog(), "gpt");
  Config other = config;
  EXPECT_EQ(common_settings(config), common_settings(other));
  other.lr *= 2.0f;
  EXPECT_NE(common_settings(config), common_settings(other));
  other = config;
  other.precision = "bfloat16";
  EXPECT_NE(common_settings(config), common_settings(other));
  other.precision = "f32";
  EXPECT_EQ(common_settings(config), common_settings(other));
  other.loss_scale = "dynamic";
  EXPECT_NE(common_settings(config), common_settings(other));
  other = config;
  other.lr_schedule = "linear";
  EXPECT_NE(common_settings(config), common_settings(other));
  other = config;
  other.weight_average = 0.5f;
  EXPECT_NE(common_settings(config), common_settings(other));
  other = config;
  other.accumulation = 2;
  EXPECT_NE(common_settings(config), common_settings(other));
  const std::vector<void (*)(Config&)> changes = {[](Config& c) { c.max_length = 7; },
                                                  [](Config& c) { c.vocabulary = 100; },
                                                  [](Config& c) { c.min_count = 9; },
                                                  [](Config& c) { c.text_column = "body"; },
                                                  [](Config& c) { c.label_column = "kind"; },
                                                  [](Config& c) { c.weights = "file"; },
                                                  [](Config& c) { c.run = "folder"; },
                                                  [](Config& c) { c.resume = "auto"; },
                                                  [](Config& c) { c.text_files.texts["a"] = "b"; },
                                                  [](Config& c) { c.positions = "rotary"; },
                                                  [](Config& c) { c.tied = false; },
                                                  [](Config& c) { c.augment = "crop"; },
                                                  [](Config& c) { c.gradients = "bfloat16"; },
                                                  [](Config& c) { c.weights_part = "shared"; },
                                                  [](Config& c) { c.text_marks = true; },
                                                  [](Config& c) { c.checkpoint_every = 5; },
                                                  [](Config& c) { c.keep = 1; },
                                                  [](Config& c) { c.eval_samples = 9; }};
  for (std::size_t i = 0; i < changes.size(); ++i) {
    other = config;
    changes[i](other);
    EXPECT_NE(common_settings(config), common_settings(other)) << i;
  }
  other = config;
  other.loader_threads = 2;
  EXPECT_EQ(common_settings(config), common_settings(other));
  other = config;
  other.json = "elsewhere";
  EXPECT_EQ(common_settings(config), common_settings(other));
}

}  // namespace
}  // namespace kolo::trainer
