#include "runtime/wait/spin_time.h"

#include <gtest/gtest.h>

namespace kolo {
namespace {

using std::chrono::microseconds;

constexpr Duration kLeast = microseconds(50);
constexpr Duration kMost = microseconds(200);
constexpr Duration kShortSleep = microseconds(60);
constexpr Duration kLongSleep = microseconds(600);

TEST(SpinTime, GrowsWhileSleepsAreShort) {
  SpinTime spin(kLeast, kMost);
  EXPECT_EQ(spin.now(), kLeast);
  spin.slept(kShortSleep);
  EXPECT_EQ(spin.now(), microseconds(100));
  for (int i = 0; i < 10; ++i) spin.slept(kShortSleep);
  EXPECT_EQ(spin.now(), kMost);
}

TEST(SpinTime, ShrinksWhileSleepsAreLong) {
  SpinTime spin(kLeast, kMost);
  for (int i = 0; i < 10; ++i) spin.slept(kShortSleep);
  spin.slept(kLongSleep);
  EXPECT_EQ(spin.now(), microseconds(100)) << "one pause says little";
  for (int i = 0; i < 10; ++i) spin.slept(kLongSleep);
  EXPECT_EQ(spin.now(), kLeast);
}

TEST(SpinTime, StaysWhereTheUserSetsIt) {
  for (const Duration spin : {Duration(0), Duration(microseconds(7))}) {
    SpinTime time(spin, spin);
    time.slept(kShortSleep);
    EXPECT_EQ(time.now(), spin);
    time.slept(kLongSleep);
    EXPECT_EQ(time.now(), spin);
  }
}

}  // namespace
}  // namespace kolo
