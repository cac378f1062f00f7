#pragma once

#include <cstdint>

#include "topology/discovery.h"

namespace kolo {

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

}  // namespace kolo
