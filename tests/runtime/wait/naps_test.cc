#include "runtime/wait/naps.h"

#include <gtest/gtest.h>

namespace kolo {
namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;

/// Users' threads that sit down every so often, and the engine's thread, which naps.
class Users {
 public:
  /// The nap that begins after they have sat down `times` times in `time`.
  Duration nap_after(std::uint64_t times, Duration time) {
    now_ += time;
    drives_ += times;
    return naps_.next(now_, drives_);
  }

 private:
  Naps naps_;
  TimePoint now_{hours(1)};
  std::uint64_t drives_ = 0;
};

TEST(Naps, AreLongWhileUsersComeBackAtOnce) {
  Users users;
  EXPECT_EQ(users.nap_after(2, hours(1)), Naps::kUsual) << "a loop begins";
  EXPECT_EQ(users.nap_after(1000, Naps::kUsual), Naps::kLong);
  EXPECT_EQ(users.nap_after(10'000, Naps::kLong), Naps::kLong) << "it goes on";
  EXPECT_EQ(users.nap_after(300, Naps::kLong), Naps::kUsual) << "it has ended meanwhile";
  EXPECT_EQ(users.nap_after(0, Naps::kUsual), Naps::kUsual);
}

TEST(Naps, AreUsualWhereUsersComputeBetweenSums) {
  Users users;
  for (int step = 0; step < 100; ++step) {
    EXPECT_EQ(users.nap_after(10, Naps::kUsual), Naps::kUsual) << step;
  }
}

TEST(Naps, AreUsualAfterACallThatCutOneShort) {
  Users users;
  users.nap_after(1000, Naps::kUsual);
  EXPECT_EQ(users.nap_after(50, milliseconds(1)), Naps::kUsual) << "too little is known";
  EXPECT_EQ(users.nap_after(1, microseconds(100)), Naps::kUsual);
}

}  // namespace
}  // namespace kolo
