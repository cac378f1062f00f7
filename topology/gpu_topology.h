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

/// Returns a PCI address in normal form: NVIDIA's "00000000:1B:00.0" becomes "0000:1b:00.0".
std::string pci_address(std::string_view text);

/// Counts the NVLinks between each pair of GPUs. `ends_of_gpu` lists the ends of each GPU's links.
/// Two GPUs behind NVSwitches are connected by as many links as the GPU with fewer links to
/// switches has.
///
/// Threads: pure.
void add_nvlinks(GpuInventory& inventory, const std::vector<std::vector<NvLinkEnd>>& ends_of_gpu);

/// The distance between two PCI devices of a machine; a smaller value is nearer. The classes are
/// those of `nvidia-smi topo -m`.
enum class PciDistance : std::uint8_t {
  kSelf,
  kSwitch,      ///< PIX: at most one PCIe switch.
  kSwitches,    ///< PXB: several PCIe switches, but no host bridge.
  kHostBridge,  ///< PHB: a host bridge, so through the processor.
  kNumaNode,    ///< NODE: several host bridges of one NUMA node.
  kSystem,      ///< SYS: the link between NUMA nodes; also if unknown.
};

/// Returns "X", "PIX", "PXB", "PHB", "NODE" or "SYS".
const char* label(PciDistance distance);

/// Returns the distance between two devices of one machine. Threads: pure.
PciDistance distance_between(const PciDevice& a, const PciDevice& b);

/// The position of a GPU in its machine.
struct GpuPlace {
  int numa_node = -1;  ///< OS index of the nearest NUMA node; -1 if unknown.
  std::string cpus;    ///< Hardware threads near the GPU, such as "0-15,32-47".
  /// By index in `HardwareSnapshot::numa_nodes`: relative latency from the GPU's NUMA node; 10 is
  /// local. Empty if unknown.
  std::vector<int> numa_distances;
  /// Index in `HardwareSnapshot::devices` of the card assigned to this GPU; -1 if there is none.
  int network_card = -1;
  std::vector<PciDistance> to_network_cards;  ///< By index in `GpuTopology::network_cards`.
};

/// Distances indexed by [from][to]; kSelf on the diagonal.
using PciDistances = std::vector<std::vector<PciDistance>>;

/// The positions of a node's GPUs, relative to its processors and network cards.
struct GpuTopology {
  std::vector<GpuPlace> places;    ///< By GPU.
  std::vector<int> network_cards;  ///< Indices in `HardwareSnapshot::devices`.
  PciDistances distances;
};

/// Finds each GPU in hwloc's result by its PCI address, and assigns the nearest network card to it.
/// Of equally near cards it uses only the fastest ones, and assigns them to GPUs in rotation.
///
/// Threads: pure.
GpuTopology gpu_topology(const GpuInventory& inventory, const HardwareSnapshot& hardware);

}  // namespace kolo
