#include "comm/base/output_file.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "comm/base/error.h"
#include "tests/support/temporary_directory.h"

namespace kolo {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

void expect_refused(const std::string& path) {
  SCOPED_TRACE(path);
  const auto expect_error = [&](const auto& call) {
    try {
      call();
      ADD_FAILURE() << "no error";
    } catch (const KoloError& e) {
      EXPECT_EQ(e.error().code, ErrorCode::kIo);
      EXPECT_THAT(e.error().what, HasSubstr(path));
    }
  };
  expect_error([&] { expect_writable(path); });
  expect_error([&] { write_file(path, "text"); });
}

TEST(OutputFile, HoldsWhatWasWrittenLast) {
  const test::TemporaryDirectory folder;
  const fs::path path = folder.path() / "rows.json";
  write_file(path, "a longer text");
  write_file(path, "[]\n");
  EXPECT_EQ(text_of(path), "[]\n");
}

TEST(OutputFile, AskingFirstChangesNothing) {
  const test::TemporaryDirectory folder;
  expect_writable(folder.path() / "new.json");
  EXPECT_TRUE(fs::is_empty(folder.path()));
  const fs::path old = folder.write("old.json", "[1]");
  expect_writable(old);
  EXPECT_EQ(text_of(old), "[1]");
}

TEST(OutputFile, WhatCannotBeWrittenIsKnownBefore) {
  const test::TemporaryDirectory folder;
  expect_refused(folder.path());
  expect_refused(folder.path() / "no such folder" / "rows.json");
  expect_refused(folder.write("file", "") / "rows.json");
}

// If a file cannot grow, the old file keeps its contents, and no temporary file remains.
TEST(OutputFile, KeepsItsContentsWhereTheDiskIsFull) {
  const test::TemporaryDirectory folder;
  const std::string path = folder.write("rows.json", "[1]\n");
  const std::string long_text(100, 'x');
  const test::FullDisk full(50);
  EXPECT_THROW(write_file(path, long_text), KoloError);
  EXPECT_EQ(text_of(path), "[1]\n");
  EXPECT_THROW(append_file(path, long_text), KoloError);
  EXPECT_EQ(text_of(path), "[1]\n");
  append_file(path, "[2]\n");
  EXPECT_EQ(text_of(path), "[1]\n[2]\n");
  EXPECT_THROW(write_file(folder.path() / "new.json", long_text), KoloError);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1);
}

TEST(OutputFile, FollowsLinksAndWritesDevicesStraight) {
  const test::TemporaryDirectory folder;
  const fs::path path = folder.write("rows.json", "old");
  const fs::path link = folder.path() / "latest.json";
  fs::create_symlink(path, link);
  write_file(link, "new");
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(text_of(path), "new");
  expect_writable("/dev/null");
  write_file("/dev/null", "text");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

}  // namespace
}  // namespace kolo
