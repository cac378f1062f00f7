#include "topology/link_costs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

namespace kolo {
namespace {

TEST(LinkCosts, ReplacesWhatIsNamed) {
  const LinkCosts costs = parse_link_costs("network_latency_us=2.5,memory_bytes_per_us=2e4");
  EXPECT_EQ(costs.network.latency_us, 2.5);
  EXPECT_EQ(costs.memory.bytes_per_us, 20000);
  EXPECT_EQ(costs.network.bytes_per_us, LinkCosts{}.network.bytes_per_us);
  EXPECT_EQ(costs.memory.latency_us, LinkCosts{}.memory.latency_us);
  EXPECT_EQ(to_string(parse_link_costs("")), to_string(LinkCosts{}));
}

TEST(LinkCosts, ReadsEveryLinkOfADevice) {
  const LinkCosts costs = parse_link_costs(
      "device_latency_us=1,device_bytes_per_us=2,staging_latency_us=3,staging_bytes_per_us=4,"
      "native_network_latency_us=5,native_network_bytes_per_us=6");
  EXPECT_EQ(costs.device.latency_us, 1);
  EXPECT_EQ(costs.device.bytes_per_us, 2);
  EXPECT_EQ(costs.staging.latency_us, 3);
  EXPECT_EQ(costs.staging.bytes_per_us, 4);
  EXPECT_EQ(costs.native_network.latency_us, 5);
  EXPECT_EQ(costs.native_network.bytes_per_us, 6);
}

TEST(LinkCosts, TheNetworkOfTheLibraryFollowsTheNetworkUnlessNamed) {
  const LinkCosts both = parse_link_costs("network_bytes_per_us=25000");
  EXPECT_EQ(both.native_network.bytes_per_us, 25000);
  EXPECT_EQ(both.native_network.latency_us, both.network.latency_us);
  const LinkCosts apart =
      parse_link_costs("native_network_bytes_per_us=46000,network_bytes_per_us=25000");
  EXPECT_EQ(apart.native_network.bytes_per_us, 46000);
  EXPECT_EQ(apart.network.bytes_per_us, 25000);
  LinkCosts defaults;
  defaults.native_network.bytes_per_us = 7;
  EXPECT_EQ(parse_link_costs("memory_latency_us=1", defaults).native_network.bytes_per_us, 7);
}

TEST(LinkCosts, TextReadsBackAsTheSame) {
  const LinkCosts costs{.memory = {.latency_us = 0, .bytes_per_us = 1.0 / 3},
                        .network = {.latency_us = 1e-9, .bytes_per_us = 12345.678},
                        .device = {.latency_us = 2.5, .bytes_per_us = 1e6},
                        .staging = {.latency_us = 0.1, .bytes_per_us = 3},
                        .native_network = {.latency_us = 7, .bytes_per_us = 0.7}};
  const LinkCosts read = parse_link_costs(to_string(costs));
  for (LinkCost LinkCosts::*link : {&LinkCosts::memory, &LinkCosts::network, &LinkCosts::device,
                                    &LinkCosts::staging, &LinkCosts::native_network}) {
    EXPECT_EQ((read.*link).latency_us, (costs.*link).latency_us);
    EXPECT_EQ((read.*link).bytes_per_us, (costs.*link).bytes_per_us);
  }
}

TEST(LinkCosts, NamesWhatItRejects) {
  for (const char* text :
       {"latency=1", "memory_latency_us", "memory_latency_us=", "memory_latency_us=1us",
        "memory_latency_us=-1", "memory_latency_us=nan", "network_bytes_per_us=inf",
        "network_bytes_per_us=0", ",", "memory_latency_us=1,,network_latency_us=1"}) {
    EXPECT_THROW(parse_link_costs(text), std::invalid_argument) << text;
  }
  try {
    parse_link_costs("memory_latency_us=1,network_latency_us=fast");
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("network_latency_us=fast"));
  }
}

}  // namespace
}  // namespace kolo
