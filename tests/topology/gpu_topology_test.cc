#include "topology/gpu_topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "topology/nvlink.h"

namespace kolo {
namespace {

using testing::ElementsAre;

std::size_t place(int index) { return static_cast<std::size_t>(index); }

/// GPUs that reach each other over PCIe, with peer access, until links are added.
GpuInventory gpus_on_pcie(int count) {
  GpuInventory inventory;
  for (int i = 0; i < count; ++i) {
    inventory.gpus.push_back({.name = "Example GPU", .address = "gpu" + std::to_string(i)});
    inventory.links.emplace_back(place(count), GpuLink{.peer_access = true});
  }
  return inventory;
}

void join(GpuInventory& inventory, int a, int b, int nvlinks) {
  inventory.links[place(a)][place(b)].nvlinks = nvlinks;
  inventory.links[place(b)][place(a)].nvlinks = nvlinks;
}

/// Two sockets, each with the host bridge of half of the GPUs; one switch per GPU pair.
HardwareSnapshot two_sockets(int gpus, int cards_per_switch) {
  HardwareSnapshot hardware;
  hardware.numa_nodes = {{.os_index = 0, .cpus = "0-31"}, {.os_index = 1, .cpus = "32-63"}};
  hardware.numa_distances = {{10, 21}, {21, 10}};
  for (int i = 0; i < gpus; ++i) {
    const int socket = i / (gpus / 2);
    const std::string host = "host " + std::to_string(socket);
    const std::string on_switch = "switch " + std::to_string(i / 2);
    hardware.devices.push_back({.kind = PciDevice::Kind::kGpu,
                                .address = "gpu" + std::to_string(i),
                                .numa_node = socket,
                                .bridges = {host, on_switch, "port " + std::to_string(i)}});
    if (i % 2 != 0) continue;
    for (int card = 0; card < cards_per_switch; ++card) {
      const std::string name = "card" + std::to_string(i + card);
      hardware.devices.push_back({.kind = PciDevice::Kind::kNetwork,
                                  .address = name,
                                  .numa_node = socket,
                                  .bridges = {host, on_switch, "port of " + name},
                                  .link_gb_per_s = 31.5});
    }
  }
  return hardware;
}

std::vector<std::string> card_of_each_gpu(const GpuTopology& topology,
                                          const HardwareSnapshot& hardware) {
  std::vector<std::string> cards;
  for (const GpuPlace& gpu : topology.places) {
    cards.push_back(hardware.devices.at(place(gpu.network_card)).address);
  }
  return cards;
}

TEST(PciDistance, GrowsWithWhatLiesBetween) {
  const HardwareSnapshot hardware = hardware_from_file(KOLO_TEST_DATA "/pcie_switches.xml");
  ASSERT_EQ(hardware.devices.size(), 3U);
  const PciDevice& gpu = hardware.devices[0];
  const PciDevice& card = hardware.devices[1];
  const PciDevice& other_gpu = hardware.devices[2];
  EXPECT_THAT(gpu.bridges,
              ElementsAre("host 0000:00", "0000:00:01.0", "0000:01:00.0", "0000:02:00.0"));
  EXPECT_EQ(distance_between(gpu, gpu), PciDistance::kSelf);
  EXPECT_EQ(distance_between(gpu, card), PciDistance::kSwitch);
  EXPECT_EQ(distance_between(gpu, other_gpu), PciDistance::kHostBridge);

  PciDevice elsewhere;
  elsewhere.address = "0000:80:00.0";
  elsewhere.bridges = {"host 0000:80"};
  EXPECT_EQ(distance_between(gpu, elsewhere), PciDistance::kSystem);
  elsewhere.numa_node = gpu.numa_node;
  EXPECT_EQ(distance_between(gpu, elsewhere), PciDistance::kNumaNode);
  elsewhere.bridges = {gpu.bridges[0], gpu.bridges[1], "0000:01:01.0", "0000:09:00.0"};
  EXPECT_EQ(distance_between(gpu, elsewhere), PciDistance::kSwitches);
  EXPECT_EQ(distance_between(elsewhere, gpu), PciDistance::kSwitches);
}

TEST(Discovery, TellsProcessorsAndDistancesOfNumaNodes) {
  const HardwareSnapshot hardware = hardware_from_file(KOLO_TEST_DATA "/pcie_switches.xml");
  ASSERT_EQ(hardware.numa_nodes.size(), 2U);
  EXPECT_EQ(hardware.numa_nodes[1].cpus, "2-3");
  EXPECT_THAT(hardware.numa_distances, ElementsAre(ElementsAre(10, 21), ElementsAre(21, 10)));
  EXPECT_TRUE(hardware_from_file(KOLO_TEST_DATA "/two_sockets.xml").numa_distances.empty());
}

TEST(GpuTopology, WithoutAGpuThereIsNothing) {
  const GpuTopology topology = gpu_topology({.absence = "no driver"}, two_sockets(8, 1));
  EXPECT_TRUE(topology.places.empty());
  EXPECT_TRUE(topology.rings.empty());
}

TEST(GpuTopology, KnowsTheMemoryNearEachGpu) {
  const GpuTopology topology = gpu_topology(gpus_on_pcie(8), two_sockets(8, 2));
  ASSERT_EQ(topology.places.size(), 8U);
  EXPECT_EQ(topology.places[5].numa_node, 1);
  EXPECT_EQ(topology.places[5].cpus, "32-63");
  EXPECT_THAT(topology.places[5].numa_distances, ElementsAre(21, 10));
  EXPECT_EQ(topology.distances[4][5], PciDistance::kSwitch);
  EXPECT_EQ(topology.distances[4][7], PciDistance::kHostBridge);
  EXPECT_EQ(topology.distances[3][4], PciDistance::kSystem);
}

TEST(GpuTopology, CardsOfOneSwitchAreDealtOut) {
  const HardwareSnapshot hardware = two_sockets(8, 2);
  EXPECT_THAT(card_of_each_gpu(gpu_topology(gpus_on_pcie(8), hardware), hardware),
              ElementsAre("card0", "card1", "card2", "card3", "card4", "card5", "card6", "card7"));
}

TEST(GpuTopology, GpusShareACardWhereThereIsOne) {
  const HardwareSnapshot hardware = two_sockets(4, 1);
  EXPECT_THAT(card_of_each_gpu(gpu_topology(gpus_on_pcie(4), hardware), hardware),
              ElementsAre("card0", "card0", "card2", "card2"));
}

TEST(GpuTopology, AFasterCardIsPreferredOnlyAtTheSameDistance) {
  HardwareSnapshot hardware = two_sockets(4, 2);
  for (PciDevice& device : hardware.devices) {
    if (device.address == "card1") device.link_gb_per_s = 63;
  }
  EXPECT_THAT(card_of_each_gpu(gpu_topology(gpus_on_pcie(4), hardware), hardware),
              ElementsAre("card1", "card1", "card2", "card3"));
}

TEST(GpuTopology, AGpuThatHwlocDoesNotSeeIsFarFromAll) {
  GpuInventory inventory = gpus_on_pcie(2);
  inventory.gpus[1].address = "unseen";
  const GpuTopology topology = gpu_topology(inventory, two_sockets(2, 1));
  EXPECT_EQ(topology.places[1].numa_node, -1);
  EXPECT_EQ(topology.distances[0][1], PciDistance::kSystem);
}

TEST(GpuTopology, NoCardMeansNone) {
  EXPECT_EQ(gpu_topology(gpus_on_pcie(2), two_sockets(2, 0)).places[0].network_card, -1);
}

std::vector<GpuRing> rings_of(const GpuInventory& inventory, const HardwareSnapshot& hardware) {
  return gpu_topology(inventory, hardware).rings;
}

// Eight GPUs behind NVSwitches: every pair has all of a GPU's links, but they are the same ones.
TEST(Rings, OneTakesAllLinksOfSwitches) {
  GpuInventory inventory = gpus_on_pcie(8);
  const std::vector<NvLinkEnd> ends(18, {.kind = NvLinkEnd::Kind::kSwitch, .address = "switch"});
  add_nvlinks(inventory, std::vector<std::vector<NvLinkEnd>>(8, ends));
  const std::vector<GpuRing> rings = rings_of(inventory, two_sockets(8, 1));
  ASSERT_EQ(rings.size(), 1U);
  EXPECT_THAT(rings[0].order, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_EQ(rings[0].nvlinks, 18);
}

// The hybrid cube mesh of a DGX-1 with V100: six links per GPU make three rings, two of them alike.
TEST(Rings, UseEveryLinkOfACubeMesh) {
  GpuInventory inventory = gpus_on_pcie(8);
  for (const auto& [a, b] :
       {std::pair{0, 3}, {0, 4}, {1, 2}, {1, 5}, {2, 3}, {4, 7}, {5, 6}, {6, 7}}) {
    join(inventory, a, b, 2);
  }
  for (const auto& [a, b] :
       {std::pair{0, 1}, {0, 2}, {1, 3}, {2, 6}, {3, 7}, {4, 5}, {4, 6}, {5, 7}}) {
    join(inventory, a, b, 1);
  }
  const std::vector<GpuRing> rings = rings_of(inventory, two_sockets(8, 2));
  ASSERT_EQ(rings.size(), 2U);
  EXPECT_THAT(rings[0].order, ElementsAre(0, 3, 2, 1, 5, 6, 7, 4));
  EXPECT_EQ(rings[0].nvlinks, 2);
  EXPECT_THAT(rings[1].order, ElementsAre(0, 1, 3, 7, 5, 4, 6, 2));
  EXPECT_EQ(rings[1].nvlinks, 1);
}

TEST(Rings, OfTheDrawingInTheHeader) {
  GpuInventory inventory = gpus_on_pcie(4);
  for (const auto& [a, b] : {std::pair{0, 1}, {0, 2}, {1, 3}}) join(inventory, a, b, 1);
  for (const auto& [a, b] : {std::pair{0, 3}, {1, 2}, {2, 3}}) join(inventory, a, b, 2);
  const std::vector<GpuRing> rings = rings_of(inventory, two_sockets(4, 1));
  ASSERT_EQ(rings.size(), 2U);
  EXPECT_THAT(rings[0].order, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(rings[1].order, ElementsAre(0, 2, 1, 3));
  EXPECT_EQ(rings[0].nvlinks, 1);
  EXPECT_EQ(rings[1].nvlinks, 1);
}

// Bridged pairs whose numbers lie apart: each pair stays together, sockets are crossed twice.
TEST(Rings, KeepBridgedPairsTogether) {
  GpuInventory inventory = gpus_on_pcie(8);
  for (const auto& [a, b] : {std::pair{0, 2}, {1, 3}, {4, 6}, {5, 7}}) join(inventory, a, b, 4);
  const std::vector<GpuRing> rings = rings_of(inventory, two_sockets(8, 1));
  ASSERT_EQ(rings.size(), 1U);
  EXPECT_EQ(rings[0].nvlinks, 0);
  EXPECT_THAT(rings[0].order, ElementsAre(0, 1, 3, 4, 6, 7, 5, 2));
}

TEST(Rings, OverPcieCrossSocketsTwice) {
  const std::vector<GpuRing> rings = rings_of(gpus_on_pcie(8), two_sockets(8, 1));
  ASSERT_EQ(rings.size(), 1U);
  EXPECT_THAT(rings[0].order, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

// Numbers that alternate between the sockets: the order of indices would cross eight times.
TEST(Rings, DoNotFollowNumbersThatAlternate) {
  GpuInventory inventory = gpus_on_pcie(8);
  HardwareSnapshot hardware = two_sockets(8, 0);
  for (std::size_t i = 0; i < 8; ++i) {
    hardware.devices[i].address = "gpu" + std::to_string(i < 4 ? 2 * i : 2 * (i - 4) + 1);
  }
  EXPECT_THAT(rings_of(inventory, hardware)[0].order, ElementsAre(0, 1, 3, 5, 7, 4, 6, 2));
}

TEST(Rings, PreferPeerAccessToNearness) {
  GpuInventory inventory = gpus_on_pcie(4);
  for (const auto& [a, b] : {std::pair{0, 1}, {1, 0}, {2, 3}}) {
    inventory.links[place(a)][place(b)].peer_access = false;  // One direction is enough.
  }
  EXPECT_THAT(rings_of(inventory, two_sockets(4, 0))[0].order, ElementsAre(0, 2, 1, 3));
}

TEST(Rings, GoByCudasRankWhereNobodyCountsLinks) {
  GpuInventory inventory = gpus_on_pcie(4);
  for (int a = 0; a < 4; ++a) {
    for (int b = 0; b < 4; ++b) {
      const bool fast = (a + b) % 4 == 3 || (a + b) % 4 == 1;
      inventory.links[place(a)][place(b)].performance_rank = fast && a / 2 != b / 2 ? 0 : 1;
    }
  }
  const std::vector<int> order = rings_of(inventory, two_sockets(4, 0))[0].order;
  int fast_hops = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    fast_hops +=
        inventory.links[place(order[i])][place(order[(i + 1) % 4])].performance_rank == 0 ? 1 : 0;
  }
  EXPECT_EQ(fast_hops, 2);
}

TEST(Rings, OfFewGpus) {
  EXPECT_THAT(rings_of(gpus_on_pcie(1), two_sockets(2, 1))[0].order, ElementsAre(0));
  GpuInventory pair = gpus_on_pcie(2);
  join(pair, 0, 1, 12);
  const std::vector<GpuRing> rings = rings_of(pair, two_sockets(2, 1));
  ASSERT_EQ(rings.size(), 1U);
  EXPECT_THAT(rings[0].order, ElementsAre(0, 1));
  EXPECT_EQ(rings[0].nvlinks, 12);
}

TEST(Rings, OfSixteenGpusVisitEachOnce) {
  GpuInventory inventory = gpus_on_pcie(16);
  for (int i = 0; i < 16; ++i) join(inventory, i * 3 % 16, (i + 1) * 3 % 16, 6);
  const std::vector<GpuRing> rings = rings_of(inventory, two_sockets(16, 1));
  ASSERT_EQ(rings.size(), 1U);
  EXPECT_EQ(rings[0].nvlinks, 6);
  EXPECT_THAT(rings[0].order, ElementsAre(0, 3, 6, 9, 12, 15, 2, 5, 8, 11, 14, 1, 4, 7, 10, 13));
}

TEST(Rings, BeyondSixteenGpusGoByIndex) {
  const std::vector<GpuRing> rings = rings_of(gpus_on_pcie(17), HardwareSnapshot{});
  ASSERT_EQ(rings.size(), 1U);
  ASSERT_EQ(rings[0].order.size(), 17U);
  EXPECT_TRUE(std::is_sorted(rings[0].order.begin(), rings[0].order.end()));
}

class Suggestion : public testing::Test {
 protected:
  std::vector<int> suggest(int local_size) const {
    const GpuTopology topology = gpu_topology(inventory_, two_sockets(8, 1));
    return suggest_gpus(inventory_.links, topology.distances, topology.rings, local_size);
  }
  GpuInventory inventory_ = gpus_on_pcie(8);
};

TEST_F(Suggestion, FollowsTheRing) {
  for (const auto& [a, b] : {std::pair{0, 2}, {1, 3}, {4, 6}, {5, 7}}) join(inventory_, a, b, 4);
  EXPECT_THAT(suggest(8), ElementsAre(0, 1, 3, 4, 6, 7, 5, 2));
}

TEST_F(Suggestion, FewRanksTakeTheBestStretch) {
  join(inventory_, 6, 7, 4);
  EXPECT_THAT(suggest(2), ElementsAre(6, 7));
  EXPECT_THAT(suggest(1), ElementsAre(0));
}

TEST_F(Suggestion, NeighboursShareWhereRanksAreMany) {
  EXPECT_THAT(suggest(12), ElementsAre(0, 0, 1, 2, 2, 3, 4, 4, 5, 6, 6, 7));
}

TEST(NvLinks, AreCountedByWhereTheyEnd) {
  GpuInventory inventory = gpus_on_pcie(3);
  const NvLinkEnd to_0{.kind = NvLinkEnd::Kind::kGpu, .address = "gpu0"};
  const NvLinkEnd to_1{.kind = NvLinkEnd::Kind::kGpu, .address = "gpu1"};
  const NvLinkEnd other{.kind = NvLinkEnd::Kind::kOther, .address = "gpu2"};
  const NvLinkEnd on_switch{.kind = NvLinkEnd::Kind::kSwitch, .address = "switch"};
  add_nvlinks(inventory, {{to_1, to_1, other, on_switch}, {to_0, to_0}, {on_switch, on_switch}});
  EXPECT_EQ(inventory.links[0][1].nvlinks, 2);
  EXPECT_FALSE(inventory.links[0][1].through_switch);
  EXPECT_EQ(inventory.links[0][2].nvlinks, 1);
  EXPECT_TRUE(inventory.links[2][0].through_switch);
  EXPECT_EQ(inventory.links[1][2].nvlinks, 0);
}

TEST(NvLinks, AddressesAreWrittenAlike) {
  EXPECT_EQ(pci_address("00000000:1B:00.0"), "0000:1b:00.0");
  EXPECT_EQ(pci_address("0000:1B:00.0"), "0000:1b:00.0");
  EXPECT_EQ(pci_address("00010000:01:00.0"), "00010000:01:00.0");
  EXPECT_EQ(pci_address(""), "");
}

}  // namespace
}  // namespace kolo
