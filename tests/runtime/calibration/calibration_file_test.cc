#include "runtime/calibration/calibration_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/options/version.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/thrown_error.h"
#include "topology/link_costs.h"

namespace kolo {
namespace {

namespace fs = std::filesystem;

constexpr CalibrationFile::Time kNow{std::chrono::hours(24 * 365 * 55)};
constexpr const char* kCosts = "memory_latency_us=0.5,network_bytes_per_us=120";
constexpr const char* kOthers = "memory_latency_us=0.5,network_bytes_per_us=57";

/// Returns the complete costs that a text gives.
std::string costs_of(const std::optional<std::string>& text) {
  return text ? to_string(parse_link_costs(*text)) : "none";
}

class CalibrationFileTest : public testing::Test {
 protected:
  std::string path() const { return (folder_.path() / "below" / "costs.json").string(); }
  CalibrationFile file(const std::string& shape = "2 ranks") const { return {path(), shape}; }
  /// Saves costs twice, as if two jobs in a row had measured them.
  void remember(const std::string& costs, CalibrationFile::Time now,
                const std::string& shape = "2 ranks") const {
    for (int job = 0; job < 2; ++job) file(shape).remember_link_costs(costs, now);
  }
  std::string text() const {
    std::ifstream in(path());
    std::stringstream all;
    all << in.rdbuf();
    return all.str();
  }
  void write(const std::string& text) const {
    fs::create_directories(fs::path(path()).parent_path());
    std::ofstream(path()) << text;
  }

  const test::TemporaryDirectory folder_;
};

TEST_F(CalibrationFileTest, RemembersByShape) {
  EXPECT_EQ(file().link_costs(kNow), std::nullopt);
  remember(kCosts, kNow);
  remember(kOthers, kNow, "4 ranks");
  EXPECT_EQ(costs_of(file().link_costs(kNow)), costs_of(kCosts));
  EXPECT_EQ(costs_of(file("4 ranks").link_costs(kNow)), costs_of(kOthers));
  EXPECT_EQ(file("8 ranks").link_costs(kNow), std::nullopt);
}

// The link is shared during the first job, and again during the fourth.
TEST_F(CalibrationFileTest, CostsOfABusyMachineAreMeasuredAgain) {
  file().remember_link_costs(kOthers, kNow);
  EXPECT_EQ(file().link_costs(kNow), std::nullopt) << "nobody has confirmed them";
  file().remember_link_costs(kCosts, kNow);
  EXPECT_EQ(file().link_costs(kNow), std::nullopt) << "they differ by a factor of two";
  file().remember_link_costs(kOthers, kNow);
  EXPECT_EQ(file().link_costs(kNow), std::nullopt);
  file().remember_link_costs(kCosts, kNow);
  EXPECT_EQ(costs_of(file().link_costs(kNow)), costs_of(kCosts));
}

TEST_F(CalibrationFileTest, CostsExpire) {
  remember(kCosts, kNow);
  const auto second = std::chrono::seconds(1);
  EXPECT_TRUE(file().link_costs(kNow + kCostsExpire - second));
  EXPECT_EQ(file().link_costs(kNow + kCostsExpire), std::nullopt);
  EXPECT_EQ(file().link_costs(kNow - second), std::nullopt) << "a clock was set back";
}

TEST_F(CalibrationFileTest, ForgetsExpiredCostsOfOtherShapes) {
  file("old").remember_link_costs(kCosts, kNow - kCostsExpire);
  remember(kCosts, kNow - kCostsExpire / 2, "young");
  file("new").remember_link_costs(kCosts, kNow);
  EXPECT_EQ(text().find("old"), std::string::npos);
  EXPECT_TRUE(file("young").link_costs(kNow));
}

// Each writer has a separate temporary file, so a reader always finds one complete document.
TEST_F(CalibrationFileTest, ManyThreadsWriteAtOnce) {
  std::vector<std::thread> writers;
  for (int writer = 0; writer < 4; ++writer) {
    writers.emplace_back([this, writer] {
      for (int i = 0; i < 20; ++i) {
        file("shape " + std::to_string(writer)).remember_link_costs(kCosts, kNow);
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  int found = 0;
  for (int writer = 0; writer < 4; ++writer) {
    if (file("shape " + std::to_string(writer)).link_costs(kNow)) ++found;
  }
  EXPECT_GE(found, 1) << "the last writer's at least";
  EXPECT_EQ(std::distance(fs::directory_iterator(fs::path(path()).parent_path()), {}), 1);
}

TEST_F(CalibrationFileTest, LeavesNothingElseBehind) {
  file().remember_link_costs(kCosts, kNow);
  std::size_t files = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(path()).parent_path())) {
    EXPECT_EQ(entry.path(), path());
    ++files;
  }
  EXPECT_EQ(files, 1u);
}

TEST_F(CalibrationFileTest, WhatIsDamagedOrForeignHoldsNothingAndIsReplaced) {
  file().remember_link_costs(kCosts, kNow);
  const std::string good = text();
  std::string other = good;
  other.replace(other.find(kVersion), std::string(kVersion).size(), "0.0.0");
  for (const std::string& bad :
       {std::string(), good.substr(0, good.size() / 2), good.substr(0, 12),
        std::string(R"({"kolo": ")") + kVersion + R"(", "shapes": 7})",
        std::string(R"({"kolo": ")") + kVersion + R"(", "shapes": {"2 ranks": 7}})",
        std::string(R"({"kolo": ")") + kVersion + R"(", "shapes": {"2 ranks": {}}})",
        std::string(R"({"kolo": ")") + kVersion + R"(", "shapes": {"2 ranks": {"link_costs": 7}}})",
        std::string(R"({"kolo": ")") + kVersion +
            R"(", "shapes": {"2 ranks": {"link_costs": "speed=1"}}})",
        other}) {
    SCOPED_TRACE(bad);
    write(bad);
    EXPECT_EQ(file().link_costs(kNow), std::nullopt);
    remember(kCosts, kNow);
    EXPECT_EQ(costs_of(file().link_costs(kNow)), costs_of(kCosts));
  }
}

TEST_F(CalibrationFileTest, AnotherFileIsLeftAlone) {
  for (const std::string other :
       {"root:x:0:0:root:/root:/bin/bash\n", "null", "[1]", R"([{"system": "kolo", "size": 4}])",
        R"({"shapes": {"2 ranks": {"link_costs": "memory_latency_us=1"}}})"}) {
    SCOPED_TRACE(other);
    write(other);
    EXPECT_EQ(file().link_costs(kNow), std::nullopt);
    file().remember_link_costs(kCosts, kNow);
    EXPECT_EQ(text(), other);
  }
}

// The pipe represents devices such as /dev/null, which must not be replaced by a file.
TEST_F(CalibrationFileTest, WhatIsNoFileIsLeftAlone) {
  fs::create_directories(path());
  const std::string pipe = (folder_.path() / "pipe").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& name : {path(), pipe}) {
    SCOPED_TRACE(name);
    const fs::file_type type = fs::status(name).type();
    CalibrationFile other(name, "2 ranks");
    EXPECT_EQ(other.link_costs(kNow), std::nullopt);
    other.remember_link_costs(kCosts, kNow);
    EXPECT_EQ(fs::status(name).type(), type);
    EXPECT_TRUE(fs::is_empty(path()));
  }
}

TEST_F(CalibrationFileTest, NoPathRemembersNothing) {
  CalibrationFile none("", "2 ranks");
  none.remember_link_costs(kCosts, kNow);
  EXPECT_EQ(none.link_costs(kNow), std::nullopt);
}

TEST_F(CalibrationFileTest, AFileThatCannotBeWrittenIsNoError) {
  write("{}");
  const std::string below_a_file = path() + "/costs.json";
  CalibrationFile impossible(below_a_file, "2 ranks");
  impossible.remember_link_costs(kCosts, kNow);
  EXPECT_EQ(impossible.link_costs(kNow), std::nullopt);
}

const Tuning kTuning = {
    {.collective = "all-reduce", .in_place = true, .bytes = 65536, .algorithm = "ring"},
    {.collective = "broadcast", .bytes = 4096, .algorithm = "direct", .chunk_bytes = 2048},
    {.in_place = true, .bytes = 1U << 24, .fusion_bytes = 1U << 22}};

TEST_F(CalibrationFileTest, RemembersTuningByShape) {
  EXPECT_EQ(file().tuning(kNow), "");
  file().remember_tuning(kTuning, kNow);
  file("4 ranks").remember_tuning({}, kNow);
  EXPECT_EQ(file().tuning(kNow), to_text(kTuning));
  EXPECT_EQ(file("4 ranks").tuning(kNow), "[]");
  EXPECT_EQ(file("8 ranks").tuning(kNow), "");
  const Tuning read = parse_tuning(file().tuning(kNow));
  ASSERT_EQ(read.size(), kTuning.size());
  EXPECT_EQ(read[1].collective, "broadcast");
  EXPECT_EQ(read[1].algorithm, "direct");
  EXPECT_EQ(read[1].chunk_bytes, 2048u);
  EXPECT_TRUE(read[2].in_place);
  EXPECT_EQ(read[2].fusion_bytes, 1U << 22);
  file().remember_tuning({kTuning[1]}, kNow);
  EXPECT_EQ(file().tuning(kNow), to_text({kTuning[1]}));
}

TEST_F(CalibrationFileTest, CostsAndTuningDoNotReplaceEachOther) {
  remember(kCosts, kNow);
  file().remember_tuning(kTuning, kNow);
  EXPECT_EQ(costs_of(file().link_costs(kNow)), costs_of(kCosts));
  remember(kCosts, kNow + kCostsExpire);
  EXPECT_EQ(file().tuning(kNow + kCostsExpire), to_text(kTuning));
}

TEST_F(CalibrationFileTest, TuningExpires) {
  file().remember_tuning(kTuning, kNow);
  const auto second = std::chrono::seconds(1);
  EXPECT_EQ(file().tuning(kNow + kTuningExpires - second), to_text(kTuning));
  testing::internal::CaptureStderr();
  EXPECT_EQ(file().tuning(kNow + kTuningExpires), "");
  EXPECT_THAT(
      testing::internal::GetCapturedStderr(),
      testing::HasSubstr("ignoring what kolo-bench tune found for 2 ranks: not of the last"));
  EXPECT_EQ(file().tuning(kNow - second), "") << "a clock was set back";
}

TEST_F(CalibrationFileTest, AChoiceOfAnAlgorithmThatIsGoneIsPassedOver) {
  Tuning tuning = kTuning;
  tuning[1].algorithm = "bruck";
  file().remember_tuning(tuning, kNow);
  testing::internal::CaptureStderr();
  EXPECT_EQ(file().tuning(kNow), to_text({kTuning[0], kTuning[2]}));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST_F(CalibrationFileTest, DamagedTuningIsIgnoredAndReplaced) {
  file().remember_tuning(kTuning, kNow);
  const std::string good = text();
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string bad = good;
    const std::size_t at = bad.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return bad.replace(at, from.size(), to);
  };
  for (const auto& [bad, why] : std::vector<std::pair<std::string, std::string>>{
           {replaced("\"broadcast\"", "\"narrowcast\""), "collective"},
           {replaced("2048", "281474976710656"), "chunk_bytes"},
           {replaced("4194304", "281474976710656"), "fusion_bytes"},
           {replaced("\"choices\"", "\"choises\""), "choices"},
           {replaced("65536", "\"many\""), "type"},
           {replaced("65536", "-1"), "bytes"},
           {replaced("65536", "0.5"), "bytes"},
           {replaced("2048", "-1"), "chunk_bytes"},
           {replaced("4194304", "-1"), "fusion_bytes"},
           {replaced("4194304", "18446744073709551615"), "fusion_bytes"},
           {replaced("\"tuned\": {", "\"tuned\": {\"2 ranks\": 7, \"old\": {"), ""}}) {
    SCOPED_TRACE(bad);
    write(bad);
    testing::internal::CaptureStderr();
    const std::string found = file().tuning(kNow);
    const std::string log = testing::internal::GetCapturedStderr();
    if (!why.empty()) {
      EXPECT_EQ(found, "");
      EXPECT_THAT(log, testing::HasSubstr("ignoring what kolo-bench tune found for 2 ranks: "));
      EXPECT_THAT(log, testing::HasSubstr(why));
    }
    file().remember_tuning(kTuning, kNow);
    EXPECT_EQ(file().tuning(kNow), to_text(kTuning));
  }
}

TEST_F(CalibrationFileTest, TuningThatCannotBeWrittenIsAnError) {
  write("root:x:0:0:root:/root:/bin/bash\n");
  for (const std::string& impossible : {std::string(), path(), path() + "/below"}) {
    CalibrationFile none(impossible, "2 ranks");
    for (const Error& error : {test::thrown_error([&] { none.check_writable(); }),
                               test::thrown_error([&] { none.remember_tuning(kTuning, kNow); })}) {
      EXPECT_EQ(error.code, ErrorCode::kIo);
      EXPECT_EQ(error.what, "cannot write '" + impossible + "'");
    }
  }
  EXPECT_EQ(text(), "root:x:0:0:root:/root:/bin/bash\n");
}

TEST_F(CalibrationFileTest, CheckingThatItCanBeWrittenChangesNoFile) {
  file().check_writable();
  EXPECT_TRUE(fs::is_empty(fs::path(path()).parent_path()));
  file().remember_tuning(kTuning, kNow);
  file().check_writable();
  EXPECT_EQ(std::distance(fs::directory_iterator(fs::path(path()).parent_path()), {}), 1);
  EXPECT_EQ(file().tuning(kNow), to_text(kTuning));
}

TEST(CalibrationPath, FollowsTheEnvironment) {
  EXPECT_EQ(calibration_path(""), "");
  EXPECT_EQ(calibration_path("/some/file"), "/some/file");
  ::setenv("XDG_CACHE_HOME", "/cache", 1);
  EXPECT_EQ(calibration_path("auto"), "/cache/kolo/calibration.json");
  ::unsetenv("XDG_CACHE_HOME");
  const std::string home = ::getenv("HOME") == nullptr ? "" : ::getenv("HOME");
  ::setenv("HOME", "/home/anna", 1);
  EXPECT_EQ(calibration_path("auto"), "/home/anna/.cache/kolo/calibration.json");
  ::unsetenv("HOME");
  EXPECT_EQ(calibration_path("auto"), "");
  if (!home.empty()) ::setenv("HOME", home.c_str(), 1);
}

}  // namespace
}  // namespace kolo
