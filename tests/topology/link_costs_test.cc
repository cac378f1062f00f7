#include "topology/link_costs.h"

#include <gmock/gmock.h>

#include <iomanip>
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

TEST(LinkCosts, TheLibrarysCostsAreNoGuessIfTheyAreGiven) {
  const LinkCosts guessed = parse_link_costs("native_timed=0");
  EXPECT_EQ(guessed.native_timed, 0);
  EXPECT_EQ(parse_link_costs("memory_latency_us=1", guessed).native_timed, 0);
  EXPECT_EQ(parse_link_costs("network_latency_us=1", guessed).native_timed, 1);
  EXPECT_EQ(parse_link_costs("native_network_latency_us=1", guessed).native_timed, 1);
  EXPECT_EQ(parse_link_costs("network_latency_us=1,native_timed=0").native_timed, 0);
}

TEST(LinkCosts, StagingFollowsTheLatencyOfADeviceUnlessNamed) {
  EXPECT_EQ(parse_link_costs("device_latency_us=7").staging.latency_us, 14);
  EXPECT_EQ(parse_link_costs("staging_latency_us=3,device_latency_us=7").staging.latency_us, 3);
  EXPECT_EQ(parse_link_costs("device_bytes_per_us=7").staging.latency_us, 10);
}

TEST(LinkCosts, TextReadsBackAsTheSame) {
  // Every key gets a different value, difficult values first.
  std::vector<double> values{0, 1.0 / 3, 1e-9, 12345.678, 1e15};
  std::string text, key_values = to_string(LinkCosts{});
  for (std::size_t i = 0; !key_values.empty(); ++i) {
    if (i >= values.size()) values.push_back(static_cast<double>(i) + 0.1);
    const std::size_t comma = key_values.find(',');
    const std::string key = key_values.substr(0, key_values.find('='));
    key_values = comma == std::string::npos ? "" : key_values.substr(comma + 1);
    std::ostringstream item;
    item << std::setprecision(17) << (text.empty() ? "" : ",") << key << '=' << values[i];
    text += item.str();
  }
  const LinkCosts read = parse_link_costs(text);
  EXPECT_EQ(read.memory.latency_us, 0);
  EXPECT_EQ(read.memory.cached_bytes_per_us, 1.0 / 3);
  EXPECT_EQ(read.memory.bytes_per_us, 1e15);
  EXPECT_NE(read.memory.packed_bytes_per_us, read.memory.streamed_bytes_per_us);
  EXPECT_NE(read.step_us, LinkCosts{}.step_us);
  EXPECT_EQ(to_string(parse_link_costs(to_string(read))), to_string(read));
  EXPECT_NE(to_string(read), to_string(LinkCosts{}));
}

TEST(LinkCosts, PacksPastTheCacheOnlyWhereThatIsClearlyFaster) {
  EXPECT_FALSE(LinkCosts{}.memory.packs_past_cache());
  const auto past_cache = [](const char* text) {
    return parse_link_costs(text).memory.packs_past_cache();
  };
  // These are costs of cores that share a cache, and of two cores that do not.
  EXPECT_FALSE(past_cache("memory_packed_bytes_per_us=23600,memory_streamed_bytes_per_us=20900"));
  EXPECT_TRUE(past_cache("memory_packed_bytes_per_us=3400,memory_streamed_bytes_per_us=19000"));
  EXPECT_FALSE(past_cache("memory_packed_bytes_per_us=20000,memory_streamed_bytes_per_us=22000"));
}

TEST(LinkCosts, SmallPagesAreReadOnlyWhereCoresAreFar) {
  EXPECT_FALSE(LinkCosts{}.reads_small_pages());
  const auto reads = [](const char* text) { return parse_link_costs(text).reads_small_pages(); };
  EXPECT_FALSE(reads("memory_shared_bytes_per_us=31000,private_page_us=0.22"));
  EXPECT_TRUE(reads("memory_shared_bytes_per_us=3500,private_page_us=0.22"));
}

TEST(LinkCosts, RatesOfNodesAreAList) {
  const LinkCosts costs = parse_link_costs("node_rates=118.5:0:12,network_bytes_per_us=12");
  EXPECT_EQ(costs.node_rates, (std::vector<double>{118.5, 0, 12}));
  EXPECT_EQ(parse_link_costs(to_string(costs)).node_rates, costs.node_rates);
  EXPECT_EQ(to_string(costs, "node_"), "node_rates=118.5:0:12");
  EXPECT_TRUE(parse_link_costs("").node_rates.empty());
  EXPECT_EQ(parse_link_costs("", costs).node_rates, costs.node_rates);
}

TEST(LinkCosts, PrintsOnlyWhatIsAskedFor) {
  EXPECT_THAT(to_string(LinkCosts{}, "network_"),
              testing::AllOf(testing::StartsWith("network_latency_us="),
                             testing::Not(testing::HasSubstr("memory")),
                             testing::Not(testing::HasSubstr("native"))));
}

TEST(LinkCosts, NamesWhatItRejects) {
  for (const char* text :
       {"latency=1", "memory_latency_us", "memory_latency_us=", "memory_latency_us=1us",
        "memory_latency_us=-1", "memory_latency_us=nan", "network_bytes_per_us=inf",
        "network_bytes_per_us=0", "memory_slot_bytes_per_us=0", ",",
        "memory_latency_us=1,,network_latency_us=1"}) {
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
