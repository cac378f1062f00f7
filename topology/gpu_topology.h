#pragma once

#include <string>
#include <vector>

#include "topology/discovery.h"
#include "topology/gpu_discovery.h"
#include "topology/pci_distance.h"

namespace kolo {

/// Where a GPU sits in its machine.
struct GpuPlace {
  int numa_node = -1;  ///< OS index of the nearest memory; -1 if unknown.
  std::string cpus;    ///< Hardware threads near it: "0-15,32-47".
  /// By places in `HardwareSnapshot::numa_nodes`: relative latency from the GPU's NUMA node, 10 is
  /// local. Empty if unknown.
  std::vector<int> numa_distances;
  int network_card = -1;                      ///< Its own: place in `devices`; -1 if none.
  std::vector<PciDistance> to_network_cards;  ///< By places in `GpuTopology::network_cards`.
};

/// [from][to]; kSelf on the diagonal.
using PciDistances = std::vector<std::vector<PciDistance>>;

/// The GPUs of a node among its processors and network cards.
struct GpuTopology {
  std::vector<GpuPlace> places;    ///< By GPU.
  std::vector<int> network_cards;  ///< Places in `HardwareSnapshot::devices`.
  PciDistances distances;
};

/// Finds each GPU in what hwloc saw, by its PCI address, and gives it the nearest network card. Of
/// equally near cards only the fastest count, and GPUs get them in rotation.
///
/// Threads: pure.
GpuTopology gpu_topology(const GpuInventory& inventory, const HardwareSnapshot& hardware);

}  // namespace kolo
