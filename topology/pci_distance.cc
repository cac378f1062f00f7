#include "topology/pci_distance.h"

#include <algorithm>
#include <cstddef>

namespace kolo {

const char* label(PciDistance distance) {
  switch (distance) {
    case PciDistance::kSelf:
      return "X";
    case PciDistance::kSwitch:
      return "PIX";
    case PciDistance::kSwitches:
      return "PXB";
    case PciDistance::kHostBridge:
      return "PHB";
    case PciDistance::kNumaNode:
      return "NODE";
    case PciDistance::kSystem:
      break;
  }
  return "SYS";
}

// A switch is a bridge upstream and one bridge downstream for each of its ports:
//
//   host 0000:80 - root port - upstream +- downstream - GPU
//                                       +- downstream - network card
//
// so neighbours on one switch share all bridges but the last of each.
PciDistance distance_between(const PciDevice& a, const PciDevice& b) {
  if (a.address == b.address) return PciDistance::kSelf;
  const auto shared = static_cast<std::size_t>(
      std::mismatch(a.bridges.begin(), a.bridges.end(), b.bridges.begin(), b.bridges.end()).first -
      a.bridges.begin());
  if (shared == 0) {
    return a.numa_node >= 0 && a.numa_node == b.numa_node ? PciDistance::kNumaNode
                                                          : PciDistance::kSystem;
  }
  if (shared == 1) return PciDistance::kHostBridge;
  const std::size_t below = std::max(a.bridges.size(), b.bridges.size()) - shared;
  return below <= 1 ? PciDistance::kSwitch : PciDistance::kSwitches;
}

}  // namespace kolo
