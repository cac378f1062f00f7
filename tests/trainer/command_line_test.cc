#include "trainer/loop/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <variant>
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

TEST(CommandLineTest, EpochsReplaceTheStepsOfTheModel) {
  const CommandLine line = parse({"--data", "d", "--model", "gpt", "--epochs", "1"});
  EXPECT_EQ(total_steps(line.config, 32, 2), 1u);
  EXPECT_THAT(line.settings, testing::Contains(Setting{"epochs", "1"}));
  EXPECT_THAT(line.settings,
              testing::Not(testing::Contains(testing::Field(&Setting::option, "steps"))));
  EXPECT_THAT(parse({"--data", "d", "--model", "gpt"}).settings,
              testing::Not(testing::Contains(testing::Field(&Setting::option, "epochs"))));
  EXPECT_EQ(code_of({"--data", "d", "--model", "mlp", "--epochs", "3", "--steps", "9"},
                    "--epochs 3 and --steps 9: only one of them can count"),
            ErrorCode::kUsage);
}

TEST(CommandLineTest, ABatchMayFollowTheSpeedOfRanks) {
  for (const std::vector<const char*>& spelling :
       {std::vector<const char*>{"--batch", "auto"}, {"--batch=auto"}, {"--balance", "auto"}}) {
    std::vector<const char*> arguments = {"--data", "d", "--model", "lenet"};
    arguments.insert(arguments.end(), spelling.begin(), spelling.end());
    const CommandLine parsed = parse(arguments);
    EXPECT_EQ(parsed.config.balance, "auto");
    EXPECT_EQ(parsed.config.batch, 32u);
    EXPECT_THAT(parsed.settings, testing::Contains(Setting{"balance", "auto"}));
  }
  EXPECT_EQ(parse({"--data", "d", "--batch", "7", "--balance", "2,1"}).config.batch, 7u);
}

// No changed option is silently ignored. A value equal to the default changes nothing.
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
      // The format follows from the files.
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
  // The help names every choice, also across wrapped lines.
  for (const char* name : {"mlp:", "lenet:", "language-model:", "cifar10:", "adamw:", "cosine:"}) {
    EXPECT_THAT(help, HasSubstr(name));
  }
}

TEST(CommandLineTest, MistakesAreUsageErrors) {
  EXPECT_EQ(code_of({"--data", "d", "--bacth", "3"}, "--bacth"), ErrorCode::kUsage);
  EXPECT_EQ(code_of({"--data", "d", "--batch", "x"}, "--batch"), ErrorCode::kUsage);
  EXPECT_EQ(code_of({"--data", "d", "--cuda-graph", "often"}, "--cuda-graph"), ErrorCode::kUsage);
  EXPECT_EQ(code_of({}, "--data"), ErrorCode::kUsage);
}

TEST(CommandLineTest, ANumberThatIsNoCountIsAUsageError) {
  for (const char* option : {"--steps", "--epochs", "--batch", "--accumulate", "--hidden", "--keep",
                             "--eval-every", "--eval-samples", "--warmup-steps", "--seed"}) {
    for (const char* value : {"-1", "99999999999999999999"}) {
      EXPECT_EQ(code_of({"--data", "d", "--model", "mlp", option, value},
                        option + std::string(": '") + value + "' is negative or too large"),
                ErrorCode::kUsage);
    }
  }
  EXPECT_EQ(parse({"--data", "d", "--seed", "18446744073709551615"}).config.seed, ~0ull);
}

TEST(CommandLineTest, AnOptionThatIsGivenTwiceIsAUsageErrorWithBothValues) {
  EXPECT_EQ(code_of({"--data", "d", "--batch", "16", "--batch", "32"},
                    "--batch is given more than once: 16, 32"),
            ErrorCode::kUsage);
  EXPECT_EQ(code_of({"--data", "d", "--model", "mlp", "--model", "lenet"},
                    "--model is given more than once: mlp, lenet"),
            ErrorCode::kUsage);
}

TEST(CommandLineTest, ValuesThatCannotBeUsedAreConfigurationErrors) {
  const auto expect = [](const char* option, const char* value, const char* part) {
    EXPECT_EQ(code_of({"--data", "d", option, value}, part), ErrorCode::kConfig) << option;
  };
  expect("--loss-scale", "on", "--loss-scale: 'on' is not auto, off, dynamic or a number");
  expect("--loss-scale", "-8", "--loss-scale: '-8' is not auto, off, dynamic or a number");
  expect("--dropout", "1", "--dropout must be at least 0 and below 1");
  expect("--max-length", "0", "--max-length must be at least 1");
  expect("--weights-part", "shared", "--weights-part shared: needs --weights FILE");
  expect("--loader-threads", "65", "--loader-threads must be between 0 and 64");
  expect("--checkpoint-every", "10", "--checkpoint-every: needs --run DIR");
  expect("--resume", "auto", "--resume auto: needs --run DIR");
  expect("--epsilon", "0", "--epsilon must be greater than 0");
  expect("--lr", "inf", "--lr must be a finite number");
  expect("--decay-rules", "b", "--decay-rules: 'b' is not PATTERN=NUMBER");
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

/// Gives the field another value that the option accepts.
void change(const ConfigOption& option) {
  static const std::map<std::string, std::string> texts = {
      {"--augment", "crop"},       {"--balance", "2,1"},        {"--decay-rules", "b=0.5"},
      {"--precision", "bfloat16"}, {"--gradients", "bfloat16"}, {"--loss-scale", "512"}};
  std::visit(
      [&](auto* field) {
        using T = std::remove_cvref_t<decltype(*field)>;
        if constexpr (std::is_same_v<T, bool>) {
          *field = !*field;
        } else if constexpr (std::is_constructible_v<T, std::string>) {
          const auto* choices = std::get_if<Choices>(&option.values);
          const auto text = texts.find(option.name);
          *field = choices != nullptr    ? choices->at(*field == choices->front() ? 1 : 0)
                   : text != texts.end() ? text->second
                                         : "another";
        } else {
          *field = static_cast<T>(std::get<ConfigRange>(option.values).holds(7.0) ? 7.0 : 0.5);
        }
      },
      option.field);
}

Config gpt_config() { return default_config(built_in_catalog(), "gpt"); }

TEST(ConfigOptionTest, EachHasAFieldOfItsOwnWhichRanksAndRunsCompareAsItsRowSays) {
  Config config = gpt_config();
  const std::vector<ConfigOption> before = options_of(config);
  for (std::size_t i = 0; i < before.size(); ++i) {
    SCOPED_TRACE(before[i].name);
    Config other = config;
    const std::vector<ConfigOption> options = options_of(other);
    change(options[i]);
    options[i].check_value();
    for (std::size_t k = 0; k < options.size(); ++k) {
      EXPECT_EQ(options[k].text() != before[k].text(), k == i) << options[k].name;
    }
    const unsigned traits = options[i].traits;
    EXPECT_EQ(common_settings(other) != common_settings(config), (traits & kOfRank) == 0);
    EXPECT_EQ(course_settings(other) != course_settings(config),
              (traits & (kOfRank | kOfRanks)) == 0);
    if ((traits & kNotOnGpus) == 0) {
      require_offered_on_gpus(other);
      continue;
    }
    EXPECT_EQ(error_of([&] { require_offered_on_gpus(other); }, ErrorCode::kConfig),
              options[i].name + " " + options[i].text() + ": needs --device cpu");
  }
}

TEST(ConfigOptionTest, ValuesThatNeedAProcessorAreNamed) {
  Config config = gpt_config();
  config.shard = "optimizer";
  config.uneven = "pad";
  require_offered_on_gpus(config);
  const auto refusal = [](const Config& of) {
    return error_of([&] { require_offered_on_gpus(of); }, ErrorCode::kConfig);
  };
  Config other = config;
  other.shard = "gradients";
  EXPECT_EQ(refusal(other), "--shard gradients: needs --device cpu");
  other = config;
  other.uneven = "join";
  EXPECT_EQ(refusal(other), "--uneven join: needs --device cpu");
}

/// Returns the numbers just outside the range, and values that are not numbers.
template <typename T>
std::vector<double> outside(const ConfigRange& range) {
  constexpr bool kIsFloat = std::is_floating_point_v<T> || std::is_same_v<T, std::optional<double>>;
  std::vector<double> numbers;
  const double below = range.has_least ? range.least - 1 : range.least;
  if (std::isfinite(below) && (kIsFloat || below >= 0)) numbers.push_back(below);
  if (std::isfinite(range.most)) numbers.push_back(range.has_most ? range.most + 1 : range.most);
  if (kIsFloat) numbers.insert(numbers.end(), {std::nan(""), INFINITY});
  return numbers;
}

TEST(ConfigOptionTest, WhatAnOptionDoesNotTakeIsAnErrorThatNamesIt) {
  std::size_t seen = 0;
  Config config = gpt_config();
  for (const ConfigOption& option : options_of(config)) {
    SCOPED_TRACE(option.name);
    const auto expect = [&](ErrorCode code, const std::string& words) {
      EXPECT_THAT(error_of([&] { option.check_value(); }, code),
                  testing::StartsWith(option.name + words));
      ++seen;
    };
    std::visit(
        [&](auto* field) {
          using T = std::remove_cvref_t<decltype(*field)>;
          if constexpr (std::is_constructible_v<T, std::string>) {
            *field = "such";
            if (std::holds_alternative<Choices>(option.values)) {
              expect(ErrorCode::kUsage, ": 'such' is not ");
            }
          } else if constexpr (!std::is_same_v<T, bool>) {
            for (const double number : outside<T>(std::get<ConfigRange>(option.values))) {
              *field = static_cast<T>(number);
              expect(ErrorCode::kConfig, " must be ");
            }
          }
        },
        option.field);
  }
  EXPECT_GT(seen, 30u);
}

// The settings include a hash of the vocabularies, which are no option, and normalized dtype names.
TEST(ConfigTest, CommonSettingsCompareWhatTextsStandFor) {
  const Config config = gpt_config();
  Config other = config;
  other.precision = "f32";
  EXPECT_EQ(common_settings(config), common_settings(other));
  other.text_files.texts["a"] = "b";
  EXPECT_NE(common_settings(config), common_settings(other));
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

// Training has 600 steps of two ranks with 16 samples in each of two passes. An evaluation reads
// three tenths of those samples.
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

}  // namespace
}  // namespace kolo::trainer
