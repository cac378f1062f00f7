#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "topology/discovery.h"
#include "topology/gpu_discovery.h"

namespace kolo {

/// The remote end of one NVLink of a GPU.
struct NvLinkEnd {
  enum class Kind : std::uint8_t { kGpu, kSwitch, kOther };
  Kind kind = Kind::kOther;
  std::string address;  ///< PCI address of the remote device; empty if unknown.
};

/// A PCI address in normal form: NVIDIA's "00000000:1B:00.0" becomes "0000:1b:00.0".
std::string pci_address(std::string_view text);

/// Counts the NVLinks between each pair of GPUs; `ends_of_gpu` lists, by GPU, where each of its
/// links ends. Two GPUs behind NVSwitches reach each other with the smaller of their numbers of
/// links to the switches.
///
/// Threads: pure.
void add_nvlinks(GpuInventory& inventory, const std::vector<std::vector<NvLinkEnd>>& ends_of_gpu);

/// The distance between two PCI devices of a machine; nearer compares less. The classes are those
/// of `nvidia-smi topo -m`.
enum class PciDistance : std::uint8_t {
  kSelf,
  kSwitch,      ///< PIX: at most one PCIe switch.
  kSwitches,    ///< PXB: several PCIe switches, no host bridge.
  kHostBridge,  ///< PHB: a host bridge, so the processor.
  kNumaNode,    ///< NODE: several host bridges of one NUMA node.
  kSystem,      ///< SYS: the link between NUMA nodes, or unknown.
};

/// "X", "PIX", "PXB", "PHB", "NODE" or "SYS".
const char* label(PciDistance distance);

/// Threads: pure.
PciDistance distance_between(const PciDevice& a, const PciDevice& b);

/// The place of a GPU in its machine.
struct GpuPlace {
  int numa_node = -1;  ///< OS index of the nearest memory; -1 if unknown.
  std::string cpus;    ///< Hardware threads near it: "0-15,32-47".
  /// By index in `HardwareSnapshot::numa_nodes`: relative latency from the GPU's NUMA node, 10 is
  /// local. Empty if unknown.
  std::vector<int> numa_distances;
  int network_card = -1;                      ///< Index in `devices` of the card assigned to this
                                              ///< GPU; -1 if none.
  std::vector<PciDistance> to_network_cards;  ///< By index in `GpuTopology::network_cards`.
};

/// [from][to]; kSelf on the diagonal.
using PciDistances = std::vector<std::vector<PciDistance>>;

/// The GPUs of a node among its processors and network cards.
struct GpuTopology {
  std::vector<GpuPlace> places;    ///< By GPU.
  std::vector<int> network_cards;  ///< Indices in `HardwareSnapshot::devices`.
  PciDistances distances;
};

/// Finds each GPU in hwloc's result by its PCI address, and assigns the nearest network card to it.
/// Among equally near cards only the fastest count, and GPUs use them in rotation.
///
/// Threads: pure.
GpuTopology gpu_topology(const GpuInventory& inventory, const HardwareSnapshot& hardware);

}  // namespace kolo
