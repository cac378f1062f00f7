#include "trainer/report/listeners.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/support/temporary_directory.h"

namespace kolo::trainer {
namespace {

using test::TemporaryDirectory;
using testing::ElementsAre;
using testing::HasSubstr;

std::string contents(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

ProgressReport report_of(std::size_t step, double loss) {
  return {.step = step,
          .total_steps = 100,
          .seconds = 1.0,
          .train_loss = loss,
          .lr = 0.1,
          .gradient_norm = std::numeric_limits<double>::infinity(),
          .step_ms = 2.0,
          .rate = 3.0,
          .exposed_share = 0.5,
          .seconds_left = 4.0,
          .skipped_steps = 1};
}

/// Returns the CRC-32C of iSCSI (RFC 3720), computed bit by bit.
std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t crc = ~0u;
  for (const char byte : bytes) {
    crc ^= static_cast<std::uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0u);
  }
  return ~crc;
}

template <typename T>
T plain(const std::string& bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

/// Returns the events of a file. Checks frames and checksums.
std::vector<std::string> events_in(const std::filesystem::path& file) {
  const auto mask = [](std::uint32_t crc) { return (crc >> 15 | crc << 17) + 0xa282ead8u; };
  const std::string bytes = contents(file);
  std::vector<std::string> events;
  for (std::size_t offset = 0; offset < bytes.size();) {
    const auto length = plain<std::uint64_t>(bytes, offset);
    EXPECT_EQ(plain<std::uint32_t>(bytes, offset + 8), mask(crc32c(bytes.substr(offset, 8))));
    events.push_back(bytes.substr(offset + 12, length));
    EXPECT_EQ(plain<std::uint32_t>(bytes, offset + 12 + length), mask(crc32c(events.back())));
    offset += 16 + length;
  }
  return events;
}

class RunLogTest : public testing::Test {
 protected:
  std::filesystem::path run() const { return directory_.path() / "runs" / "first"; }

  std::vector<std::string> lines() const {
    std::ifstream in(run() / "metrics.jsonl");
    std::vector<std::string> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
  }

  std::vector<std::filesystem::path> event_files() const {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(run() / "tensorboard")) {
      files.push_back(entry.path());
    }
    return files;
  }

 private:
  TemporaryDirectory directory_;
};

TEST_F(RunLogTest, KeepsOptionsAndNumbers) {
  RunLog log(run(), "batch = 3\n");
  log.begin(0);
  log.report(report_of(10, 2.5));
  log.evaluation(10, 2.75, Metric{}, 0.5);
  EXPECT_EQ(contents(run() / "config.toml"), "batch = 3\n");
  ASSERT_EQ(lines().size(), 2u);
  const auto report = nlohmann::json::parse(lines()[0]);
  EXPECT_EQ(report["step"], 10);
  EXPECT_EQ(report["train_loss"], 2.5);
  EXPECT_TRUE(report["gradient_norm"].is_null()) << "JSON has no infinity";
  EXPECT_EQ(nlohmann::json::parse(lines()[1])["eval_accuracy"], 0.5);
}

TEST_F(RunLogTest, WritesEventsForTensorBoard) {
  RunLog log(run(), "");
  log.begin(0);
  log.evaluation(300, 2.75, Metric{}, 0.5);
  ASSERT_EQ(event_files().size(), 1u);
  const std::vector<std::string> events = events_in(event_files()[0]);
  ASSERT_EQ(events.size(), 4u);
  EXPECT_THAT(events[0], HasSubstr("brain.Event:2"));
  // Event: 2 (step): 300; 5 (summary): { 1 (value): { 1 (tag), 2 (simple_value): a float } }
  const std::string tag = "loss/held_out";
  std::string value = "\x0a" + std::string(1, static_cast<char>(tag.size())) + tag + "\x15";
  const float loss = 2.75f;
  value.append(reinterpret_cast<const char*>(&loss), sizeof loss);
  const std::string summary = "\x0a" + std::string(1, static_cast<char>(value.size())) + value;
  EXPECT_EQ(events[2].substr(9),
            "\x10\xac\x02\x2a" + std::string(1, static_cast<char>(summary.size())) + summary);
}

TEST_F(RunLogTest, AResumedRunReplacesLaterStepsAndWhatIsHalfWritten) {
  {
    RunLog log(run(), "");
    log.begin(0);
    log.report(report_of(10, 1.0));
    log.report(report_of(20, 2.0));
    log.report(report_of(30, 3.0));
  }
  std::ofstream(run() / "metrics.jsonl", std::ios::app)
      << "{\"step\": null}\n{\"step\": \"7\"}\n{\"step\": 4";
  RunLog log(run(), "");
  log.begin(20);
  log.report(report_of(30, 3.5));
  std::vector<double> losses;
  for (const std::string& line : lines()) {
    losses.push_back(nlohmann::json::parse(line)["train_loss"]);
  }
  EXPECT_THAT(losses, ElementsAre(1.0, 2.0, 3.5));
}

TEST_F(RunLogTest, WhatCouldNotBeWrittenIsTriedAgain) {
  RunLog log(run(), "");
  log.begin(0);
  std::filesystem::remove_all(run());
  testing::internal::CaptureStderr();
  log.report(report_of(10, 1.0));
  testing::internal::GetCapturedStderr();
  std::filesystem::create_directories(run());
  log.report(report_of(20, 2.0));
  EXPECT_EQ(lines().size(), 2u);
}

// No line or event is incomplete or duplicated.
TEST_F(RunLogTest, AFullDiskLeavesWholeLinesAndEvents) {
  RunLog log(run(), "");
  log.begin(0);
  log.report(report_of(10, 1.0));
  testing::internal::CaptureStderr();
  {
    const test::FullDisk full(contents(run() / "metrics.jsonl").size() + 10);
    log.report(report_of(20, 2.0));
    EXPECT_FALSE(log.is_complete());
  }
  testing::internal::GetCapturedStderr();
  EXPECT_EQ(lines().size(), 1u);
  EXPECT_TRUE(log.is_complete());
  EXPECT_EQ(lines().size(), 2u);
  EXPECT_EQ(events_in(event_files()[0]).size(), 2u + 2 * 6u);
}

TEST_F(RunLogTest, TrainingGoesOnWithoutAPlaceToWrite) {
  std::filesystem::create_directories(run().parent_path());
  std::ofstream(run()) << "a file where the folder should be";
  RunLog log(run(), "");
  testing::internal::CaptureStderr();
  log.begin(0);
  log.report(report_of(10, 1.0));
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, HasSubstr("training goes on"));
  EXPECT_EQ(text.find("training goes on"), text.rfind("training goes on")) << "said once";
}

}  // namespace
}  // namespace kolo::trainer
