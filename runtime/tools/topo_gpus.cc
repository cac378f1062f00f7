#include <algorithm>
#include <cstddef>
#include <iterator>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "runtime/tools/topo_report.h"
#include "topology/gpu_topology.h"

namespace kolo {
namespace {

using nlohmann::json;

const std::string& card_address(const HardwareSnapshot& hardware, int card) {
  return hardware.devices.at(static_cast<std::size_t>(card)).address;
}

json device_to_json(const Gpu& gpu, const GpuPlace& place, const std::vector<int>& cards,
                    const HardwareSnapshot& hardware) {
  json distances = json::object();
  for (std::size_t i = 0; i < cards.size(); ++i) {
    distances[card_address(hardware, cards[i])] = label(place.to_network_cards[i]);
  }
  return {
      {"name", gpu.name},
      {"address", gpu.address},
      {"compute_capability", fmt::format("{}.{}", gpu.compute_major, gpu.compute_minor)},
      {"memory_bytes", gpu.memory_bytes},
      {"numa_node", place.numa_node},
      {"cpus", place.cpus},
      {"numa_distances", place.numa_distances},
      {"network_card",
       place.network_card < 0 ? json(nullptr) : json(card_address(hardware, place.network_card))},
      {"network_distances", std::move(distances)}};
}

json link_to_json(const GpuLink& link, PciDistance distance) {
  return {{"label", link.nvlinks > 0 ? fmt::format("NV{}", link.nvlinks) : label(distance)},
          {"nvlinks", link.nvlinks},
          {"through_switch", link.through_switch},
          {"peer_access", link.peer_access},
          {"performance_rank", link.performance_rank},
          {"distance", label(distance)}};
}

/// Maps addresses of network cards to their names in the table: "mlx5_0" or the address.
json card_names(const json& hardware) {
  json names = json::object();
  for (const json& device : hardware["devices"]) {
    if (device["kind"] != "network") continue;
    const json& system_names = device["os_devices"];
    names[device["address"].get<std::string>()] =
        system_names.empty() ? device["address"] : system_names.back();
  }
  return names;
}

void append_device(std::string& text, const json& device, const json& names) {
  const auto out = std::back_inserter(text);
  constexpr std::size_t kGibibyte = std::size_t{1} << 30;
  fmt::format_to(out, "  GPU {}: {}, {}, compute capability {}, {} GiB", device["index"].get<int>(),
                 device["address"].get<std::string>(), device["name"].get<std::string>(),
                 device["compute_capability"].get<std::string>(),
                 device["memory_bytes"].get<std::size_t>() / kGibibyte);
  if (const int numa_node = device["numa_node"]; numa_node >= 0) {
    fmt::format_to(out, ", NUMA node {} (CPUs {})", numa_node, device["cpus"].get<std::string>());
  }
  if (const json& card = device["network_card"]; !card.is_null()) {
    const std::string address = card;
    fmt::format_to(out, ", network card {} ({})", names[address].get<std::string>(),
                   device["network_distances"][address].get<std::string>());
  }
  text += '\n';
}

/// Appends a line of a table whose columns are `width` wide.
void append_row(std::string& text, const std::vector<std::string>& cells, std::size_t width) {
  text += "  ";
  for (const std::string& cell : cells) {
    const bool last = &cell == &cells.back();
    fmt::format_to(std::back_inserter(text), "{:<{}}", cell, last ? 0 : width);
  }
  text += '\n';
}

/// Appends a matrix of GPUs by GPUs and network cards, with the layout of `nvidia-smi topo -m`.
void append_matrix(std::string& text, const json& gpus, const json& names) {
  const std::size_t count = gpus["devices"].size();
  std::vector<std::string> cells = {""};
  for (std::size_t gpu = 0; gpu < count; ++gpu) cells.push_back(fmt::format("GPU{}", gpu));
  for (const json& name : names) cells.push_back(name);
  std::size_t width = 5;
  for (const std::string& cell : cells) width = std::max(width, cell.size());
  width += 2;

  text += '\n';
  append_row(text, cells, width);
  for (std::size_t gpu = 0; gpu < count; ++gpu) {
    cells = {fmt::format("GPU{}", gpu)};
    for (std::size_t other = 0; other < count; ++other) {
      const json& link = gpus["links"][gpu][other];
      const bool staged = gpu != other && !link["peer_access"].get<bool>();
      cells.push_back(link["label"].get<std::string>() + (staged ? "*" : ""));
    }
    for (const json& distance : gpus["devices"][gpu]["network_distances"]) {
      cells.push_back(distance);
    }
    append_row(text, cells, width);
  }
  text +=
      "  NV#: that many NVLinks. PIX: one PCIe switch, PXB: several, PHB: a host bridge, NODE: "
      "host\n"
      "  bridges of a NUMA node, SYS: the link between NUMA nodes. *: without peer access\n";
}

}  // namespace

json gpus_to_json(const GpuInventory& inventory, const HardwareSnapshot& hardware) {
  const GpuTopology topology = gpu_topology(inventory, hardware);
  const std::size_t count = inventory.gpus.size();
  json devices = json::array();
  json links = json::array();
  for (std::size_t gpu = 0; gpu < count; ++gpu) {
    devices.push_back(device_to_json(inventory.gpus[gpu], topology.places[gpu],
                                     topology.network_cards, hardware));
    devices.back()["index"] = gpu;
    json row = json::array();
    for (std::size_t other = 0; other < count; ++other) {
      row.push_back(link_to_json(inventory.links[gpu][other], topology.distances[gpu][other]));
    }
    links.push_back(std::move(row));
  }
  return {{"absence", count > 0 ? json(nullptr) : json(inventory.absence)},
          {"devices", std::move(devices)},
          {"links", std::move(links)}};
}

std::string gpus_to_text(const json& gpus, const json& hardware) {
  if (!gpus["absence"].is_null()) {
    return fmt::format("  no CUDA device: {}\n", gpus["absence"].get<std::string>());
  }
  std::string text;
  const json names = card_names(hardware);
  for (const json& device : gpus["devices"]) append_device(text, device, names);
  append_matrix(text, gpus, names);
  return text;
}

}  // namespace kolo
