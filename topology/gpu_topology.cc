#include "topology/gpu_topology.h"

#include <algorithm>
#include <cstddef>
#include <tuple>

namespace kolo {
namespace {

/// The GPU as hwloc saw it; without a place if it did not.
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

/// Deals out network cards: nearest, then fastest, then least used.
class CardDealer {
 public:
  CardDealer(const std::vector<int>& cards, const HardwareSnapshot& hardware)
      : cards_(cards), hardware_(hardware), uses_(cards.size(), 0) {}

  /// Place of the card in `devices`; -1 if there is none.
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
  /// Less is better.
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
