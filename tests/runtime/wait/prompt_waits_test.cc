#include "runtime/wait/prompt_waits.h"

#include <gtest/gtest.h>

namespace kolo {
namespace {

using std::chrono::microseconds;

/// A user's thread that waits so long after the last mark as the test says.
class User {
 public:
  void iterate(microseconds rest) {
    waits_.goes_on(now_);
    now_ += rest;
    waits_.waits(now_);
    now_ += microseconds(1000);
  }
  bool expected() const { return waits_.expected(); }

 private:
  PromptWaits waits_;
  TimePoint now_{microseconds(1)};
};

TEST(PromptWaits, AreExpectedAfterSeveralInARow) {
  User user;
  for (int i = 0; i < 4; ++i) {
    EXPECT_FALSE(user.expected()) << i;
    user.iterate(microseconds(1));
  }
  EXPECT_TRUE(user.expected());
  user.iterate(microseconds(500));
  EXPECT_FALSE(user.expected());
}

}  // namespace
}  // namespace kolo
