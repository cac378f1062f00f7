#include <dlfcn.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "tests/support/temporary_directory.h"
#include "topology/discovery.h"

namespace kolo {
namespace {

/// hwloc unloads libpciaccess after each discovery. The only pointer to memory that the library
/// allocates once per process is then lost, which LeakSanitizer would report. This object keeps the
/// library loaded.
class PciAccessStaysLoaded : public testing::Environment {
 public:
  void SetUp() override { ::dlopen("libpciaccess.so.0", RTLD_LAZY); }
};

[[maybe_unused]] const testing::Environment* const kPciAccess =
    testing::AddGlobalTestEnvironment(new PciAccessStaysLoaded);

using testing::ElementsAre;
using testing::HasSubstr;

/// Writes a network card as the kernel presents it, in a separate folder.
void write_card(const std::filesystem::path& cards, const std::string& name, const char* state,
                const char* speed, bool is_device = true) {
  std::filesystem::create_directories(cards / name);
  if (is_device) std::filesystem::create_directories(cards / name / "device");
  std::ofstream(cards / name / "operstate") << state << '\n';
  std::ofstream(cards / name / "speed") << speed << '\n';
}

TEST(Discovery, LinksAreNamedByTheirCardsAndRates) {
  const test::TemporaryDirectory folder;
  const std::filesystem::path cards = folder.path() / "cards";
  EXPECT_EQ(link_identity(cards.string()), "");
  write_card(cards, "eth1", "up", "1000");
  write_card(cards, "eth0", "up", "25000");
  write_card(cards, "eth2", "down", "1000");
  write_card(cards, "docker0", "up", "10000", false);
  EXPECT_EQ(link_identity(cards.string()), "eth0 25000, eth1 1000");
  write_card(cards, "eth1", "up", "10000");
  EXPECT_EQ(link_identity(cards.string()), "eth0 25000, eth1 10000");
  ::setenv("UCX_NET_DEVICES", "eth0", 1);
  EXPECT_EQ(link_identity(cards.string()), "UCX_NET_DEVICES=eth0, eth0 25000, eth1 10000");
  ::unsetenv("UCX_NET_DEVICES");
}

TEST(Discovery, SeesThisMachine) {
  const HardwareSnapshot machine = discover_hardware();
  EXPECT_FALSE(machine.host_name.empty());
  EXPECT_GE(machine.cores, 1);
  EXPECT_GE(machine.pus, machine.cores);
  EXPECT_GT(machine.memory_bytes, 0U);
  ASSERT_FALSE(machine.packages.empty());
  ASSERT_FALSE(machine.numa_nodes.empty());
  int pus = 0;
  for (const Package& package : machine.packages) pus += package.pus;
  EXPECT_EQ(pus, machine.pus);
}

// The machine has two sockets, with a GPU and an InfiniBand card near the second socket, a network
// card near the first, and a disk controller.
TEST(Discovery, FindsDevicesAndWhereTheySit) {
  const HardwareSnapshot machine = hardware_from_file(KOLO_TEST_DATA "/two_sockets.xml");
  EXPECT_EQ(machine.host_name, "example");
  EXPECT_EQ(machine.cores, 4);
  EXPECT_EQ(machine.pus, 8);
  ASSERT_EQ(machine.packages.size(), 2U);
  EXPECT_EQ(machine.packages[1].model, "Example CPU");
  EXPECT_EQ(machine.packages[1].cores, 2);
  ASSERT_EQ(machine.numa_nodes.size(), 2U);
  EXPECT_EQ(machine.numa_nodes[0].memory_bytes, 1U << 30);
  EXPECT_EQ(machine.numa_nodes[0].pus, 4);

  ASSERT_EQ(machine.caches.size(), 1U);
  EXPECT_EQ(machine.caches[0].level, 3);
  EXPECT_EQ(machine.caches[0].kind, 'u');
  EXPECT_EQ(machine.caches[0].count, 2);
  EXPECT_EQ(machine.caches[0].pus_sharing, 4);

  ASSERT_EQ(machine.devices.size(), 3U);
  const PciDevice& ethernet = machine.devices[0];
  EXPECT_EQ(ethernet.kind, PciDevice::Kind::kNetwork);
  EXPECT_EQ(ethernet.address, "0000:01:00.0");
  EXPECT_EQ(ethernet.numa_node, 0);
  EXPECT_THAT(ethernet.os_devices, ElementsAre("eth0"));
  const PciDevice& gpu = machine.devices[1];
  EXPECT_EQ(gpu.kind, PciDevice::Kind::kGpu);
  EXPECT_EQ(gpu.address, "0000:81:00.0");
  EXPECT_EQ(gpu.vendor_id, 0x10de);
  EXPECT_EQ(gpu.name, "NVIDIA Corporation Example GPU");
  EXPECT_EQ(gpu.numa_node, 1);
  EXPECT_DOUBLE_EQ(gpu.link_gb_per_s, 31.5);
  const PciDevice& infiniband = machine.devices[2];
  EXPECT_EQ(infiniband.kind, PciDevice::Kind::kNetwork);
  EXPECT_THAT(infiniband.os_devices, ElementsAre("ib0", "mlx5_0"));
}

TEST(Discovery, NamesTheFileItCannotRead) {
  try {
    hardware_from_file("/nonexistent/machine.xml");
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("/nonexistent/machine.xml"));
  }
}

TEST(Discovery, ConfiguredIdentityComesFirst) {
  EXPECT_EQ(node_identity("left"), "left");
  EXPECT_EQ(short_node_name("left"), "left");
  EXPECT_EQ(short_node_name("rack 1:left"), "rack 1:left");
  const std::string boot_id = ":0e5c2f4e-6a0b-4e0c-9a51-1d2f3a4b5c6d";
  EXPECT_EQ(short_node_name("b" + boot_id), "b");
  EXPECT_EQ(short_node_name("b.cluster.example" + boot_id), "b");
  EXPECT_EQ(short_node_name("10.0.0.7" + boot_id), "10.0.0.7");
  EXPECT_EQ(short_node_name("b:"), "b");
  EXPECT_FALSE(node_identity().empty());
  EXPECT_EQ(node_identity(), node_identity());
}

constexpr std::size_t kMebibyte = std::size_t{1} << 20;

class Cache : public testing::Test {
 protected:
  /// Writes the kernel's description of cache number `index`.
  void add(int index, const std::string& size, const std::string& threads = "") {
    const std::string folder = "cache/index" + std::to_string(index);
    directory_.write(folder + "/size", size + "\n");
    if (!threads.empty()) directory_.write(folder + "/shared_cpu_list", threads + "\n");
  }
  std::size_t bytes() const { return last_level_cache_bytes(directory_.path()); }

 private:
  test::TemporaryDirectory directory_;
};

TEST_F(Cache, IsTheLargest) {
  EXPECT_EQ(bytes(), 0u);
  add(0, "48K", "0");
  add(1, "2048K", "0");
  EXPECT_EQ(bytes(), 2 * kMebibyte);
  add(2, "32768K", "0-7");
  EXPECT_EQ(bytes(), 32 * kMebibyte);
}

TEST_F(Cache, OfAWholeHostCountsByTheThreadsThatAreHere) {
  add(0, "491520K", "0-1");
  EXPECT_EQ(bytes(), 48 * kMebibyte);
  add(0, "491520K", "0-7,64-71");
  EXPECT_EQ(bytes(), 384 * kMebibyte);
  add(0, "491520K", "0,2,4");
  EXPECT_EQ(bytes(), 72 * kMebibyte);
}

TEST_F(Cache, CountsWholeIfNobodySaysWhoSharesIt) {
  add(0, "491520K");
  EXPECT_EQ(bytes(), 480 * kMebibyte);
  add(0, "491520K", "none");
  EXPECT_EQ(bytes(), 480 * kMebibyte);
}

}  // namespace

}  // namespace kolo
