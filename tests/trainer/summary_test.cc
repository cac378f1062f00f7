#include "trainer/report/summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "trainer/loop/job.h"
#include "trainer/report/listeners.h"

namespace kolo::trainer {
namespace {

using testing::HasSubstr;

TEST(SummaryTest, JsonHasExactlyTheAgreedFields) {
  Summary summary;
  summary.model = "lenet";
  summary.weights_hash = 0xabc;
  summary.compression_groups = {{.path = "topk(0.01,route=owners)", .k = 7, .measured_ms = 2.5}};
  summary.compression_decisions = {{.path = "dense", .reason = "it is fast"}};
  summary.curve = {{.step = 5,
                    .seconds = 1.5,
                    .train_loss = 2.0,
                    .eval_loss = std::nullopt,
                    .eval_metric = std::nullopt}};
  const auto json = nlohmann::ordered_json::parse(to_json(summary));
  std::vector<std::string> names;
  for (const auto& [name, value] : json.items()) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"model",
                                             "ranks",
                                             "nodes",
                                             "device",
                                             "precision",
                                             "wire",
                                             "compression",
                                             "algorithm",
                                             "steps",
                                             "skipped_steps",
                                             "loss_scale",
                                             "epochs",
                                             "train_loss",
                                             "eval_loss",
                                             "eval_accuracy",
                                             "eval_samples",
                                             "eval_bits_per_byte",
                                             "samples_per_s",
                                             "tokens_per_s",
                                             "step_ms",
                                             "compute_ms",
                                             "exposed_comm_ms",
                                             "data_wait_ms",
                                             "wire_bytes_per_step",
                                             "fusion_bytes",
                                             "shard",
                                             "optimizer_bytes",
                                             "gradient_bytes",
                                             "activation_bytes",
                                             "parameters_per_rank",
                                             "bubble",
                                             "compression_groups",
                                             "compression_decisions",
                                             "weights_hash",
                                             "wall_s",
                                             "curve"}));
  EXPECT_EQ(json["compression_groups"][0]["path"], "topk(0.01,route=owners)");
  EXPECT_EQ(json["compression_groups"][0]["k"], 7);
  EXPECT_EQ(json["compression_groups"][0]["measured_ms"], 2.5);
  EXPECT_EQ(json["compression_decisions"][0]["reason"], "it is fast");
  EXPECT_TRUE(json["tokens_per_s"].is_null());
  EXPECT_EQ(json["weights_hash"], "0000000000000abc");
  EXPECT_EQ(json["curve"][0]["step"], 5);
  EXPECT_TRUE(json["curve"][0]["eval_loss"].is_null());
  EXPECT_EQ(json["curve"][0].size(), 5u);
}

TEST(SummaryTest, Median) {
  EXPECT_EQ(median({}), 0.0);
  EXPECT_EQ(median({3.0}), 3.0);
  EXPECT_EQ(median({9.0, 1.0, 5.0}), 5.0);
  EXPECT_EQ(median({9.0, 1.0, 5.0, 3.0}), 4.0);
}

TEST(AgreementTest, NamesTheRanksThatDiffer) {
  EXPECT_EQ(describe_difference("the weights", {7, 7, 7}), "");
  EXPECT_THAT(describe_difference("the weights", {7, 8, 7, 9}),
              HasSubstr("the weights of ranks 1, 3 differ from those of rank 0"));
}

TEST(ProgressTest, FormatsTimes) {
  EXPECT_EQ(format_seconds(-1.0), "0s");
  EXPECT_EQ(format_seconds(59.4), "59s");
  EXPECT_EQ(format_seconds(725.0), "12m05s");
  EXPECT_EQ(format_seconds(11220.0), "3h07m");
}

/// Returns the output of `print`.
std::string printed(Progress::Style style, const std::function<void(Progress&)>& print) {
  std::FILE* out = std::tmpfile();
  if (out == nullptr) throw std::runtime_error("no temporary file");
  Progress progress(out, style, "tokens");
  print(progress);
  std::rewind(out);
  std::string text(4096, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), out));
  std::fclose(out);
  return text;
}

ProgressReport some_report(std::size_t step, std::size_t skipped_steps) {
  return {.step = step,
          .total_steps = 200000,
          .seconds = 12.0,
          .train_loss = 2.5,
          .lr = 1e-3,
          .gradient_norm = 0.7,
          .step_ms = 12.25,
          .rate = 12345.0,
          .exposed_share = 0.125,
          .seconds_left = 61.0,
          .skipped_steps = skipped_steps};
}

TEST(ProgressTest, SkippedStepsShowOnceThereAreSome) {
  for (const auto style : {Progress::Style::kLines, Progress::Style::kTerminal}) {
    const std::string text = printed(style, [](Progress& progress) {
      progress.report(some_report(1, 0));
      progress.note("-");
      progress.report(some_report(2, 3));
    });
    const std::size_t middle = text.find("-\n");
    EXPECT_EQ(text.substr(0, middle).find("skipped"), std::string::npos);
    EXPECT_THAT(text.substr(middle), HasSubstr("  3 skipped"));
  }
}

TEST(ProgressTest, LinesAreAligned) {
  const std::string text = printed(Progress::Style::kLines, [](Progress& progress) {
    for (const std::size_t step : {50u, 100000u}) progress.report(some_report(step, 0));
  });
  std::vector<std::size_t> lengths;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    lengths.push_back(end - begin);
    begin = end + 1;
  }
  ASSERT_EQ(lengths.size(), 3u);
  EXPECT_EQ(lengths[0], lengths[1]);
  EXPECT_EQ(lengths[1], lengths[2]);
  EXPECT_THAT(text, HasSubstr("12.5"));
}

}  // namespace
}  // namespace kolo::trainer
