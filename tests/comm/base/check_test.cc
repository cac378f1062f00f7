#include "comm/base/check.h"

#include <string>

#include <gtest/gtest.h>

namespace kolo {
namespace {

TEST(Check, AsksForItsTextOnlyAboutAMistake) {
  int asked = 0;
  const auto text = [&] { return "asked " + std::to_string(++asked); };
  check(true, text);
  EXPECT_EQ(asked, 0);
  try {
    check(false, text);
    FAIL() << "a mistake passed";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("asked 1"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace kolo
