#include "topology/gpu_topology.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <tuple>

namespace kolo {
namespace {

int count_ends(const std::vector<NvLinkEnd>& ends, NvLinkEnd::Kind kind,
               std::string_view address = {}) {
  return static_cast<int>(std::count_if(ends.begin(), ends.end(), [&](const NvLinkEnd& end) {
    return end.kind == kind && (address.empty() || end.address == address);
  }));
}

}  // namespace

std::string pci_address(std::string_view text) {
  constexpr std::size_t kDomainDigits = 4;
  const std::size_t colon = text.find(':');
  if (colon != std::string_view::npos && colon > kDomainDigits) {
    // Only domains without GPUs need more than four digits.
    const std::string_view surplus = text.substr(0, colon - kDomainDigits);
    if (surplus.find_first_not_of('0') == std::string_view::npos) {
      text.remove_prefix(surplus.size());
    }
  }
  std::string address(text);
  std::transform(address.begin(), address.end(), address.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return address;
}

void add_nvlinks(GpuInventory& inventory, const std::vector<std::vector<NvLinkEnd>>& ends_of_gpu) {
  const std::size_t count = inventory.gpus.size();
  for (std::size_t a = 0; a < count; ++a) {
    for (std::size_t b = 0; b < count; ++b) {
      if (a == b) continue;
      GpuLink& link = inventory.links.at(a).at(b);
      link.nvlinks =
          count_ends(ends_of_gpu.at(a), NvLinkEnd::Kind::kGpu, inventory.gpus[b].address);
      if (link.nvlinks > 0) continue;
      link.nvlinks = std::min(count_ends(ends_of_gpu.at(a), NvLinkEnd::Kind::kSwitch),
                              count_ends(ends_of_gpu.at(b), NvLinkEnd::Kind::kSwitch));
      link.through_switch = link.nvlinks > 0;
    }
  }
}

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

// A switch consists of one upstream bridge and one downstream bridge per port:
//
//   host 0000:80 - root port - upstream +- downstream - GPU
//                                       +- downstream - network card
//
// Devices on one switch therefore share all bridges except the last bridge of each.
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

namespace {

/// Returns the GPU's device in hwloc's result; only its address if hwloc did not find it.
PciDevice device_of(const Gpu& gpu, const HardwareSnapshot& hardware) {
  const auto found =
      std::find_if(hardware.devices.begin(), hardware.devices.end(),
                   [&](const PciDevice& device) { return device.address == gpu.address; });
  if (found != hardware.devices.end()) return *found;
  PciDevice unknown;
  unknown.address = gpu.address;
  return unknown;
}

void place_near_memory(int numa_node, const HardwareSnapshot& hardware, GpuPlace& place) {
  place.numa_node = numa_node;
  for (std::size_t i = 0; i < hardware.numa_nodes.size(); ++i) {
    if (hardware.numa_nodes[i].os_index != numa_node) continue;
    place.cpus = hardware.numa_nodes[i].cpus;
    if (i < hardware.numa_distances.size()) place.numa_distances = hardware.numa_distances[i];
  }
}

std::vector<int> network_cards_of(const HardwareSnapshot& hardware) {
  std::vector<int> cards;
  for (std::size_t i = 0; i < hardware.devices.size(); ++i) {
    if (hardware.devices[i].kind == PciDevice::Kind::kNetwork) cards.push_back(static_cast<int>(i));
  }
  return cards;
}

/// Assigns network cards to GPUs: the nearest, then the fastest, then the least used card.
class CardDealer {
 public:
  CardDealer(const std::vector<int>& cards, const HardwareSnapshot& hardware)
      : cards_(cards), hardware_(hardware), uses_(cards.size(), 0) {}

  /// Returns the index of the card in `devices`; -1 if there is none.
  int deal(const std::vector<PciDistance>& distances) {
    if (cards_.empty()) return -1;
    std::size_t best = 0;
    for (std::size_t i = 1; i < cards_.size(); ++i) {
      if (rating(i, distances) < rating(best, distances)) best = i;
    }
    ++uses_[best];
    return cards_[best];
  }

 private:
  /// A smaller rating is better.
  std::tuple<PciDistance, double, int> rating(std::size_t i,
                                              const std::vector<PciDistance>& distances) const {
    const PciDevice& card = hardware_.devices.at(static_cast<std::size_t>(cards_[i]));
    return {distances[i], -card.link_gb_per_s, uses_[i]};
  }

  const std::vector<int>& cards_;
  const HardwareSnapshot& hardware_;
  std::vector<int> uses_;
};

}  // namespace

GpuTopology gpu_topology(const GpuInventory& inventory, const HardwareSnapshot& hardware) {
  GpuTopology topology;
  topology.network_cards = network_cards_of(hardware);
  std::vector<PciDevice> devices;
  for (const Gpu& gpu : inventory.gpus) devices.push_back(device_of(gpu, hardware));

  CardDealer dealer(topology.network_cards, hardware);
  for (const PciDevice& device : devices) {
    GpuPlace& place = topology.places.emplace_back();
    place_near_memory(device.numa_node, hardware, place);
    for (const int card : topology.network_cards) {
      place.to_network_cards.push_back(
          distance_between(device, hardware.devices.at(static_cast<std::size_t>(card))));
    }
    place.network_card = dealer.deal(place.to_network_cards);

    std::vector<PciDistance>& row = topology.distances.emplace_back();
    for (const PciDevice& other : devices) row.push_back(distance_between(device, other));
  }
  return topology;
}

}  // namespace kolo
