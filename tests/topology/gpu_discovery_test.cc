#include "topology/gpu_discovery.h"

#include <gtest/gtest.h>

#include <optional>

#include "topology/nvml.h"

namespace kolo {
namespace {

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
