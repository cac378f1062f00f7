#include <gmock/gmock.h>

#include "topology/gpu_discovery.h"
#include "topology/gpu_topology.h"
#include "topology/nvml.h"

namespace kolo {
namespace {

using testing::ElementsAre;

std::size_t place(int index) { return static_cast<std::size_t>(index); }

/// Returns GPUs that reach each other over PCIe, with peer access, until links are added.
GpuInventory gpus_on_pcie(int count) {
  GpuInventory inventory;
  for (int i = 0; i < count; ++i) {
    inventory.gpus.push_back({.name = "Example GPU", .address = "gpu" + std::to_string(i)});
    inventory.links.emplace_back(place(count), GpuLink{.peer_access = true});
  }
  return inventory;
}

/// Returns two sockets, each with the host bridge of half of the GPUs, and one switch per GPU pair.
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

TEST(GpuDiscovery, TellsGpusOrWhyThereIsNone) {
  const GpuInventory inventory = discover_gpus();
  EXPECT_NE(inventory.absence.empty(), inventory.gpus.empty()) << inventory.absence;
  ASSERT_EQ(inventory.links.size(), inventory.gpus.size());
  for (std::size_t i = 0; i < inventory.gpus.size(); ++i) {
    EXPECT_EQ(inventory.links[i].size(), inventory.gpus.size());
    EXPECT_EQ(inventory.gpus[i].address, pci_address(inventory.gpus[i].address));
    EXPECT_FALSE(inventory.gpus[i].address.empty());
    EXPECT_GT(inventory.gpus[i].memory_bytes, 0U);
  }
}

TEST(Nvml, IsOptional) { EXPECT_FALSE(Nvml::load("libno-such-library.so.1").has_value()); }

TEST(Nvml, IsNotTakenForALibraryWithoutItsFunctions) {
  EXPECT_FALSE(Nvml::load("libm.so.6").has_value());
}

TEST(Nvml, ListsTheLinksThatAreUp) {
  const std::optional<Nvml> nvml = Nvml::load(KOLO_FAKE_NVML);
  ASSERT_TRUE(nvml.has_value());
  const std::vector<NvLinkEnd> ends = nvml->nvlinks("0000:1b:00.0");
  ASSERT_EQ(ends.size(), 3U);
  EXPECT_EQ(ends[0].kind, NvLinkEnd::Kind::kGpu);
  EXPECT_EQ(ends[0].address, "0000:2c:00.0");
  EXPECT_EQ(ends[2].kind, NvLinkEnd::Kind::kSwitch);
  EXPECT_EQ(ends[2].address, "0000:05:00.0");
  EXPECT_EQ(nvml->nvlinks("0000:2c:00.0").size(), 1U);
  EXPECT_TRUE(nvml->nvlinks("0000:ff:00.0").empty());
}

}  // namespace

}  // namespace kolo
