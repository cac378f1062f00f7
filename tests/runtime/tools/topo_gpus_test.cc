#include "runtime/tools/topo_report.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

namespace kolo {
namespace {

using testing::HasSubstr;
using testing::Not;

// Two GPUs on two host bridges of one socket. The first shares a switch with the network card.
class TopoGpus : public testing::Test {
 protected:
  TopoGpus() {
    for (const int bus : {0x03, 0x10}) {
      inventory_.gpus.push_back({.name = "Example GPU",
                                 .address = bus == 0x03 ? "0000:03:00.0" : "0000:10:00.0",
                                 .compute_major = 9,
                                 .compute_minor = 0,
                                 .memory_bytes = std::size_t{80} << 30});
    }
    inventory_.links.assign(2, std::vector<GpuLink>(2));
  }

  nlohmann::json report() const { return gpus_to_json(inventory_, hardware_); }
  std::string text() const { return gpus_to_text(report(), to_json(hardware_)); }

  HardwareSnapshot hardware_ = hardware_from_file(KOLO_TEST_DATA "/pcie_switches.xml");
  GpuInventory inventory_;
};

TEST_F(TopoGpus, SaysWhyThereIsNone) {
  inventory_ = {.absence = "the driver is too old"};
  EXPECT_EQ(report()["absence"], "the driver is too old");
  EXPECT_EQ(text(), "  no CUDA device: the driver is too old\n");
}

TEST_F(TopoGpus, TellsWhereEachGpuSits) {
  const nlohmann::json report = this->report();
  EXPECT_TRUE(report["absence"].is_null());
  const nlohmann::json& second = report["devices"][1];
  EXPECT_EQ(second["index"], 1);
  EXPECT_EQ(second["numa_node"], 0);
  EXPECT_EQ(second["cpus"], "0-1");
  EXPECT_EQ(second["numa_distances"], nlohmann::json({10, 21}));
  EXPECT_EQ(second["network_card"], "0000:04:00.0");
  EXPECT_EQ(second["network_distances"]["0000:04:00.0"], "PHB");
  EXPECT_THAT(text(), HasSubstr("  GPU 0: 0000:03:00.0, Example GPU, compute capability 9.0, "
                                "80 GiB, NUMA node 0 (CPUs 0-1), network card mlx5_0 (PIX)\n"));
}

TEST_F(TopoGpus, DrawsThePcieMatrix) {
  EXPECT_THAT(text(), HasSubstr("          GPU0    GPU1    mlx5_0\n"
                                "  GPU0    X       PHB*    PIX\n"
                                "  GPU1    PHB*    X       PHB\n"));
}

TEST_F(TopoGpus, DrawsNvLinks) {
  const GpuLink link{.nvlinks = 18, .through_switch = true, .peer_access = true};
  inventory_.links = {{{}, link}, {link, {}}};
  EXPECT_THAT(text(), HasSubstr("  GPU1    NV18    X       PHB\n"));
  EXPECT_EQ(report()["links"][0][1]["label"], "NV18");
}

/// Returns the text for a job of `nodes` nodes with two ranks each, with or without GPUs.
std::string text_of_job(int nodes, const nlohmann::json& gpus, const HardwareSnapshot& hardware) {
  std::vector<std::string> node_of_rank;
  for (int rank = 0; rank < 2 * nodes; ++rank) {
    node_of_rank.push_back("host" + std::to_string(rank / 2) +
                           ".example:0e5c2f4e-6a0b-4e0c-9a51-1d2f3a4b5c6d");
  }
  const bool is_alone = nodes == 1;
  const nlohmann::json network = {{"interface", is_alone ? "" : "eth0"},
                                  {"address", is_alone ? "" : "10.0.0.7"}};
  const nlohmann::json node = {
      {"hardware", to_json(hardware)}, {"gpus", gpus}, {"network", network}, {"reduce_threads", 1}};
  return to_text(to_json(
      TopoReport{.grid = ProcessGrid(node_of_rank),
                 .nodes = std::vector<nlohmann::json>(static_cast<std::size_t>(nodes), node),
                 .costs = {},
                 .costs_source = "defaults",
                 .start_up_rounds = 2}));
}

TEST_F(TopoGpus, TheReportLeavesOutWhatTheJobDoesNotHave) {
  const nlohmann::json gpus = report();
  inventory_ = {.absence = "the driver is too old"};
  const nlohmann::json none = report();

  const std::string small = text_of_job(1, none, hardware_);
  EXPECT_THAT(small, HasSubstr("2 ranks on 1 node\n"));
  EXPECT_THAT(small, HasSubstr("\nnode 0: host0\n"));
  EXPECT_THAT(small, HasSubstr("  1 helper thread beside each rank"));
  EXPECT_THAT(small, HasSubstr("  memory_latency_us"));
  for (const char* part :
       {"network_", "to other nodes", "device_", "staging_", "on GPUs", "hier:"}) {
    EXPECT_THAT(small, Not(HasSubstr(part)));
  }
  const std::string large = text_of_job(2, gpus, hardware_);
  for (const char* part :
       {"  to other nodes: eth0 10.0.0.7\n", "  network_latency_us", "  native_network_latency_us",
        "  staging_latency_us", "  on GPUs", "  hier:ring", "node 1: host1"}) {
    EXPECT_THAT(large, HasSubstr(part));
  }
}

}  // namespace
}  // namespace kolo
