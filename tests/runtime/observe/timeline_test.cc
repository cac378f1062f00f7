#include "runtime/observe/timeline.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "comm/base/error.h"
#include "tests/runtime/gradients/compressed_member.h"
#include "tests/support/temporary_directory.h"

namespace kolo::test {
namespace {

/// Returns the complete events of a rank's timeline, by name.
std::multimap<std::string, nlohmann::json> events_of(const std::filesystem::path& file) {
  std::multimap<std::string, nlohmann::json> events;
  for (const auto& event : nlohmann::json::parse(std::ifstream(file))) {
    if (event["ph"] == "X") events.emplace(event["name"], event);
  }
  return events;
}

TEST(TimelineTest, TellsWhatEachSparseStepDid) {
  const auto path =
      std::filesystem::path(testing::TempDir()) / ("timeline." + std::to_string(::getpid()));
  constexpr std::size_t kIterations = 3;
  std::vector<CompressionStats> last(2);
  RuntimeJob job(2, {.arena_bytes = std::size_t{1} << 22, .timeline = path, .node_id = "a"});
  job.run([&](Runtime& runtime) {
    Member member(runtime, {});
    for (std::size_t step = 0; step < kIterations; ++step) member.reduce(step);
    last[static_cast<std::size_t>(runtime.rank())] = member.set().compression_stats()[0];
  });
  for (int rank = 0; rank < 2; ++rank) {
    const auto file = path.string() + "." + std::to_string(rank);
    const auto events = events_of(file);
    std::filesystem::remove(file);
    EXPECT_EQ(events.count("wait for 'model'"), kIterations);
    EXPECT_EQ(events.count("bucket 0 of 'model'"), kIterations);
    ASSERT_EQ(events.count("sparse step"), kIterations);
    for (const auto& [name, event] : events) EXPECT_GE(event["dur"], 0.0) << name;
    const CompressionStats& stats = last[static_cast<std::size_t>(rank)];
    const auto& arguments = std::prev(events.upper_bound("sparse step"))->second["args"];
    EXPECT_EQ(arguments["path"], stats.path);
    EXPECT_EQ(arguments["payload_bytes"], stats.payload_bytes);
    EXPECT_EQ(arguments["density"], stats.density);
    EXPECT_EQ(arguments["residual_norm"], stats.residual_norm);
    EXPECT_GT(arguments["predicted_ms"], 0.0);
    EXPECT_EQ(arguments["measured_ms"], stats.measured_ms);
  }
}

// The file is valid up to the last event that fits, and `expect_complete` reports the missing ones.
TEST(TimelineTest, EndsWithTheLastEventThatFits) {
  const TemporaryDirectory folder;
  const std::string path = folder.path() / "timeline";
  constexpr std::size_t kBytes = 1000;
  {
    Timeline timeline(path, 3);
    {
      const FullDisk full(kBytes);
      for (int i = 0; i < 20; ++i) timeline.bucket("model", 7, {});
    }
    // Another event would fit now, but earlier ones are missing.
    timeline.wait("model", {});
    try {
      timeline.expect_complete();
      ADD_FAILURE() << "no error";
    } catch (const KoloError& e) {
      EXPECT_EQ(e.error().code, ErrorCode::kIo);
      EXPECT_THAT(e.error().what, testing::HasSubstr(path + ".3: File too large"));
    }
  }
  const auto events = events_of(path + ".3");
  EXPECT_GT(events.count("bucket 7 of 'model'"), 2u);
  EXPECT_EQ(events.size(), events.count("bucket 7 of 'model'"));
  EXPECT_LT(std::filesystem::file_size(path + ".3"), kBytes + 4);
}

}  // namespace
}  // namespace kolo::test
