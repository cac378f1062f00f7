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

TEST(LinkCosts, TextReadsBackAsTheSame) {
  const LinkCosts costs{.memory = {.latency_us = 0, .bytes_per_us = 1.0 / 3},
                        .network = {.latency_us = 1e-9, .bytes_per_us = 12345.678}};
  const LinkCosts read = parse_link_costs(to_string(costs));
  EXPECT_EQ(read.memory.latency_us, costs.memory.latency_us);
  EXPECT_EQ(read.memory.bytes_per_us, costs.memory.bytes_per_us);
  EXPECT_EQ(read.network.latency_us, costs.network.latency_us);
  EXPECT_EQ(read.network.bytes_per_us, costs.network.bytes_per_us);
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
