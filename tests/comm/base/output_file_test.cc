#include "comm/base/output_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

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

}  // namespace
}  // namespace kolo
