#include "comm/transport/shm_segment.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

namespace kolo {
namespace {

Error cell_error(std::string what) {
  return {.code = ErrorCode::kStall,
          .rank = 3,
          .peer = 4,
          .group = "'g' [1, 2]",
          .verb = "run",
          .bucket = "x",
          .what = std::move(what)};
}

TEST(ErrorCell, GivesWhatItWasGivenFirst) {
  ErrorCell cell;
  EXPECT_FALSE(cell.read());
  const Error error = cell_error("stuck");
  cell.write(error);
  cell.write(cell_error("another"));
  ASSERT_TRUE(cell.is_written());
  const auto read = cell.read();
  ASSERT_TRUE(read);
  EXPECT_EQ(read->to_string(), error.to_string());
  EXPECT_EQ(read->code, error.code);
}

TEST(ErrorCell, TellsInWhichVerbTheRankIsStuckUntilItMoves) {
  ErrorCell cell;
  EXPECT_EQ(cell.stuck_in(), "");
  for (const std::string verb : {"run", "complete", ""}) {
    cell.note_stuck(verb);
    EXPECT_EQ(cell.stuck_in(), verb);
  }
  cell.note_stuck("completed");
  EXPECT_EQ(cell.stuck_in(), "complete");
  EXPECT_FALSE(cell.read());
}

TEST(ErrorCell, LeavesOutTheEndOfALongText) {
  for (const std::size_t length : {900U, 990U, 1000U, 100'000U}) {
    ErrorCell cell;
    const std::string text(length, 'x');
    cell.write(cell_error(text));
    const auto read = cell.read();
    ASSERT_TRUE(read);
    EXPECT_EQ(read->rank, 3);
    EXPECT_EQ(read->bucket, "x");
    EXPECT_GE(read->what.size(), std::min(length, std::size_t{900}));
    EXPECT_EQ(text.find(read->what), 0u);
  }
  ErrorCell cell;
  Error error = cell_error("stuck");
  error.bucket = std::string(2000, 'y');
  cell.write(error);
  ASSERT_TRUE(cell.read());
  EXPECT_EQ(cell.read()->rank, 3);
}

TEST(ErrorCell, HasOneOfThoseThatThreadsWriteAtOnce) {
  for (int round = 0; round < 100; ++round) {
    ErrorCell cell;
    std::vector<std::thread> writers;
    for (const char* text : {"first", "second", "third"}) {
      writers.emplace_back([&cell, text] { cell.write(cell_error(text)); });
    }
    while (!cell.is_written()) std::this_thread::yield();
    const std::string read = cell.read()->what;
    for (std::thread& writer : writers) writer.join();
    EXPECT_TRUE(read == "first" || read == "second" || read == "third");
    EXPECT_EQ(cell.read()->what, read);
  }
}

}  // namespace
}  // namespace kolo
