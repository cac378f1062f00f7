#include "comm/network/interface_choice.h"

#include <gmock/gmock.h>

namespace kolo {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

NetworkInterface card(std::string name, std::string address, int mbit_per_s = 10'000) {
  return {.name = std::move(name), .address = std::move(address), .mbit_per_s = mbit_per_s};
}

NetworkInterface loopback() {
  return {.name = "lo", .address = "127.0.0.1", .is_loopback = true, .mbit_per_s = 0};
}

/// An interface of a node, by its index in the node's list.
struct Plug {
  int node;
  int interface;
};

/// Nodes of one rank each, and the cables between their interfaces.
class Machines {
 public:
  explicit Machines(std::vector<std::vector<NetworkInterface>> interfaces) {
    for (std::vector<NetworkInterface>& each : interfaces) {
      reach_.push_back({.interfaces = std::move(each), .ways = {}, .no_ways = {}});
    }
  }

  void connect_one_way(Plug from, Plug to) {
    std::vector<Way>& ways = reach_[static_cast<std::size_t>(from.node)].ways;
    ways.push_back({.to_node = to.node, .to = to.interface, .from = from.interface});
    std::ranges::sort(ways);
  }
  void connect(Plug a, Plug b) {
    connect_one_way(a, b);
    connect_one_way(b, a);
  }
  void connect_all(const std::vector<Plug>& plugs) {
    for (std::size_t i = 0; i < plugs.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) connect(plugs[i], plugs[j]);
    }
  }
  void fail(int from, int to, std::string why) {
    reach_[static_cast<std::size_t>(from)].no_ways.push_back(
        {.to_node = to, .why = std::move(why)});
  }

  InterfaceChoice choose() const {
    std::vector<std::string> names;
    for (std::size_t node = 0; node < reach_.size(); ++node) {
      names.push_back("host" + std::to_string(node));
    }
    return choose_interfaces(ProcessGrid(names), reach_);
  }

 private:
  std::vector<NodeReach> reach_;
};

TEST(InterfaceChoice, TakesTheInterfaceThatReachesTheOthersThoughAnotherIsFaster) {
  const std::vector<NetworkInterface> cards = {card("eth0", "192.168.1.1", 100'000),
                                               card("eth1", "10.0.0.1", 1'000)};
  Machines machines({cards, cards, cards});
  machines.connect_all({{0, 1}, {1, 1}, {2, 1}});
  machines.connect({0, 0}, {1, 0});  // reaches one of the two nodes
  const InterfaceChoice choice = machines.choose();
  EXPECT_THAT(choice.of_node, ElementsAre(1, 1, 1));
  EXPECT_THAT(choice.problem, IsEmpty());
}

TEST(InterfaceChoice, TakesTheFasterOfTwoNetworks) {
  const std::vector<NetworkInterface> cards = {card("eth0", "10.0.0.1", 1'000),
                                               card("eth1", "10.1.0.1", 25'000)};
  Machines machines({cards, cards});
  machines.connect({0, 0}, {1, 0});
  machines.connect({0, 1}, {1, 1});
  EXPECT_THAT(machines.choose().of_node, ElementsAre(1, 1));
}

TEST(InterfaceChoice, AllNodesTakeOneOfTwoEqualNetworksWhateverTheirNames) {
  Machines machines({{card("eth0", "10.1.0.1"), card("eth1", "10.0.0.1")},
                     {card("eth0", "10.0.0.2"), card("eth1", "10.1.0.2")}});
  machines.connect({0, 0}, {1, 1});
  machines.connect({0, 1}, {1, 0});
  const InterfaceChoice choice = machines.choose();
  EXPECT_THAT(choice.of_node, ElementsAre(1, 0));
  EXPECT_THAT(choice.problem, IsEmpty());
}

TEST(InterfaceChoice, TakesTheLoopbackWhereItReachesAllNodes) {
  const std::vector<NetworkInterface> cards = {card("eth0", "10.0.0.1"), loopback()};
  Machines machines({cards, cards});
  machines.connect({0, 0}, {1, 0});
  machines.connect({0, 1}, {1, 1});
  EXPECT_THAT(machines.choose().of_node, ElementsAre(1, 1));
}

TEST(InterfaceChoice, PrefersIpv4) {
  const std::vector<NetworkInterface> cards = {card("eth0", "2001:db8::1"),
                                               card("eth0", "192.0.2.1")};
  Machines machines({cards, cards});
  machines.connect({0, 0}, {1, 0});
  machines.connect({0, 1}, {1, 1});
  EXPECT_THAT(machines.choose().of_node, ElementsAre(1, 1));
}

TEST(InterfaceChoice, NamesRanksHostsAndAddressesOfAPairThatDoesNotMeet) {
  const std::vector<NetworkInterface> cards = {card("eth0", "10.0.0.1")};
  Machines machines({cards, cards, cards});
  machines.connect({0, 0}, {1, 0});
  machines.connect({0, 0}, {2, 0});
  machines.fail(1, 2, "10.0.0.3: No route to host");
  machines.fail(2, 1, "10.0.0.2: no answer in time");
  const InterfaceChoice choice = machines.choose();
  EXPECT_EQ(choice.problem,
            "rank 1 on host1 and rank 2 on host2 do not reach each other (to rank 2: 10.0.0.3: No "
            "route to host; to rank 1: 10.0.0.2: no answer in time)");
}

TEST(InterfaceChoice, OneDirectionIsNotEnough) {
  const std::vector<NetworkInterface> cards = {card("eth0", "10.0.0.1")};
  Machines machines({cards, cards});
  machines.connect_one_way({0, 0}, {1, 0});
  machines.fail(1, 0, "10.0.0.1: no answer in time");
  const InterfaceChoice choice = machines.choose();
  EXPECT_THAT(choice.of_node, ElementsAre(InterfaceChoice::kNone, InterfaceChoice::kNone));
  EXPECT_THAT(choice.problem, HasSubstr("only eth0 10.0.0.1 answered, through eth0 10.0.0.1"));
}

TEST(InterfaceChoice, ALongListOfPairsEndsWithItsNumber) {
  const std::vector<NetworkInterface> cards = {card("eth0", "10.0.0.1")};
  const Machines machines({cards, cards, cards, cards, cards});
  EXPECT_THAT(machines.choose().problem, HasSubstr("; and 6 more pairs"));
}

TEST(NetworkInterfaces, OfThisMachineIncludeItsLoopback) {
  const std::vector<NetworkInterface> found = network_interfaces();
  EXPECT_THAT(found, testing::Contains(testing::Field(&NetworkInterface::is_loopback, true)));
}

TEST(NetworkInterfaces, AListOfDevicesLeavesOutTheOthers) {
  const std::vector<NetworkInterface> all = {loopback(), card("eth0", "10.0.0.1"),
                                             card("eth01", "10.1.0.1")};
  EXPECT_THAT(listed_interfaces(all, "eth0"), ElementsAre(all[1]));
  EXPECT_THAT(listed_interfaces(all, "eth01,lo"), ElementsAre(all[0], all[2]));
  EXPECT_EQ(listed_interfaces(all, ""), all);
  EXPECT_EQ(listed_interfaces(all, "mlx5_0:1"), all);
}

}  // namespace
}  // namespace kolo
