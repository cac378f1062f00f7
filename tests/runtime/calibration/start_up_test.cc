// Counts the rounds of exchange before the first operation on one node, with and without a device.

#include "tests/runtime/calibration/start_up_job.h"

namespace kolo {
namespace {

using test::options_with;
using test::rounds_of;

TEST(StartUp, OnOneNodeTakesThreeRoundsAlsoWithADevice) {
  for (const std::string device : {"cpu", "host"}) {
    EXPECT_EQ(rounds_of({"a", "a"}, options_with(device)), 3) << device;
  }
}

TEST(StartUp, WithKnownCostsADeviceTakesTheRoundOfTheLinks) {
  Options options = options_with("cpu");
  options.calibrate = "off";
  EXPECT_EQ(rounds_of({"a", "a"}, options), 2);
  options.device = "host";
  EXPECT_EQ(rounds_of({"a", "a"}, options), 3);
}

}  // namespace
}  // namespace kolo
