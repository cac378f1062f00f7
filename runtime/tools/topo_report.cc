#include "runtime/tools/topo_report.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "runtime/tools/topo_gpus.h"

namespace kolo {
namespace {

using nlohmann::json;

constexpr std::size_t kSmallest = 4;
constexpr std::size_t kLargest = std::size_t{1} << 30;

/// "4 B", "64 KiB", "1 GiB".
std::string size_text(std::size_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < std::size(kUnits); ++unit) bytes /= 1024;
  return fmt::format("{} {}", bytes, kUnits[unit]);
}

json to_json(const PciDevice& device) {
  return {{"kind", device.kind == PciDevice::Kind::kGpu ? "gpu" : "network"},
          {"address", device.address},
          {"vendor_id", device.vendor_id},
          {"device_id", device.device_id},
          {"name", device.name},
          {"os_devices", device.os_devices},
          {"numa_node", device.numa_node},
          {"bridges", device.bridges},
          {"link_GBps", device.link_gb_per_s}};
}

json to_json(const LinkCosts& costs) {
  json values = json::object();
  for (const auto& [key, value] : link_cost_values(costs)) values[std::string(key)] = value;
  return values;
}

json predictions(const CostModel& model) {
  json rows = json::array();
  for (std::size_t bytes = kSmallest; bytes <= kLargest; bytes *= 4) {
    json times = json::object();
    for (const std::string& name : CostModel::algorithms()) {
      times[name] = model.predict_us(name, bytes);
    }
    const std::string chosen = model.choose(bytes, false);
    rows.push_back({{"bytes", bytes},
                    {"chosen", chosen},
                    {"chunk_bytes", model.chunk_bytes(chosen, {.bytes = bytes})},
                    {"fusion_bytes", model.fusion_bytes({.bytes = bytes})},
                    {"chosen_16bit", model.choose(bytes, true)},
                    {"chosen_device", model.choose_device(bytes)},
                    {"us", std::move(times)}});
  }
  return rows;
}

/// Vendor and model, or their numbers where the machine does not know the names.
std::string device_name(const json& device) {
  const std::string name = device["name"];
  if (!name.empty()) return name;
  return fmt::format("{:04x}:{:04x}", device["vendor_id"].get<int>(),
                     device["device_id"].get<int>());
}

/// "hier:ring" for "hierarchical:direct,ring", to keep the table narrow.
std::string column_name(const std::string& algorithm) {
  const std::size_t comma = algorithm.find(',');
  return comma == std::string::npos ? algorithm : "hier:" + algorithm.substr(comma + 1);
}

void append_hardware(std::string& text, const json& hardware) {
  const auto out = std::back_inserter(text);
  fmt::format_to(out, "  {}: {} cores, {} hardware threads, {} of memory\n",
                 hardware["host_name"].get<std::string>(), hardware["cores"].get<int>(),
                 hardware["pus"].get<int>(), size_text(hardware["memory_bytes"]));
  for (const json& package : hardware["packages"]) {
    fmt::format_to(out, "  package {}: {} cores, {}\n", package["os_index"].get<int>(),
                   package["cores"].get<int>(), package["model"].get<std::string>());
  }
  for (const json& numa : hardware["numa_nodes"]) {
    fmt::format_to(out, "  NUMA node {}: {} cores, {}\n", numa["os_index"].get<int>(),
                   numa["cores"].get<int>(), size_text(numa["memory_bytes"]));
  }
  for (const json& cache : hardware["caches"]) {
    fmt::format_to(out, "  {} x L{}{} of {}, for {} hardware threads each\n",
                   cache["count"].get<int>(), cache["level"].get<int>(),
                   cache["kind"].get<std::string>(), size_text(cache["bytes"]),
                   cache["pus_sharing"].get<int>());
  }
  for (const json& device : hardware["devices"]) {
    std::string names;
    for (const json& name : device["os_devices"]) names += " " + name.get<std::string>();
    const int numa_node = device["numa_node"];
    fmt::format_to(out, "  {} {}{}, {}, {}\n", device["kind"].get<std::string>(),
                   device["address"].get<std::string>(), names, device_name(device),
                   numa_node < 0 ? "near no NUMA node" : fmt::format("NUMA node {}", numa_node));
  }
}

void append_predictions(std::string& text, const json& rows) {
  const auto out = std::back_inserter(text);
  constexpr std::size_t kColumn = 10;
  const std::vector<std::string> names = CostModel::algorithms();
  fmt::format_to(out, "{:>9}", "size");
  for (const std::string& name : names) {
    const std::string column = column_name(name);
    fmt::format_to(out, " {:>{}}", column, std::max(kColumn, column.size()));
  }
  fmt::format_to(out, "  {:<36} {:<28} {:>8} {:>8}  on devices\n", "chosen", "chosen (16-bit)",
                 "chunks", "buckets");
  for (const json& row : rows) {
    fmt::format_to(out, "{:>9}", size_text(row["bytes"]));
    for (const std::string& name : names) {
      fmt::format_to(out, " {:>{}.1f}", row["us"][name].get<double>(),
                     std::max(kColumn, column_name(name).size()));
    }
    fmt::format_to(out, "  {:<36} {:<28} {:>8} {:>8}  {}\n", row["chosen"].get<std::string>(),
                   row["chosen_16bit"].get<std::string>(), size_text(row["chunk_bytes"]),
                   size_text(row["fusion_bytes"]), row["chosen_device"].get<std::string>());
  }
}

}  // namespace

json to_json(const HardwareSnapshot& hardware) {
  json packages = json::array();
  for (const Package& package : hardware.packages) {
    packages.push_back({{"os_index", package.os_index},
                        {"model", package.model},
                        {"cores", package.cores},
                        {"pus", package.pus}});
  }
  json numa_nodes = json::array();
  for (const NumaNode& node : hardware.numa_nodes) {
    numa_nodes.push_back({{"os_index", node.os_index},
                          {"memory_bytes", node.memory_bytes},
                          {"cores", node.cores},
                          {"pus", node.pus},
                          {"cpus", node.cpus}});
  }
  json caches = json::array();
  for (const CacheKind& cache : hardware.caches) {
    caches.push_back({{"level", cache.level},
                      {"kind", std::string(1, cache.kind)},
                      {"bytes", cache.bytes},
                      {"line_bytes", cache.line_bytes},
                      {"count", cache.count},
                      {"pus_sharing", cache.pus_sharing}});
  }
  json devices = json::array();
  for (const PciDevice& device : hardware.devices) devices.push_back(to_json(device));
  return {{"host_name", hardware.host_name},
          {"cores", hardware.cores},
          {"pus", hardware.pus},
          {"memory_bytes", hardware.memory_bytes},
          {"packages", std::move(packages)},
          {"numa_nodes", std::move(numa_nodes)},
          {"numa_distances", hardware.numa_distances},
          {"caches", std::move(caches)},
          {"devices", std::move(devices)}};
}

json to_json(const TopoReport& report) {
  const ProcessGrid& grid = report.grid;
  json ranks = json::array();
  for (int rank = 0; rank < grid.world_size(); ++rank) {
    ranks.push_back({{"rank", rank},
                     {"node", grid.node(rank)},
                     {"local_rank", grid.local_rank(rank)},
                     {"cross_rank", grid.cross_rank(rank)}});
  }
  json nodes = json::array();
  for (int node = 0; node < grid.num_nodes(); ++node) {
    const json& found = report.nodes.at(static_cast<std::size_t>(node));
    nodes.push_back({{"node", node},
                     {"id", grid.node_id(node)},
                     {"ranks", grid.ranks_of_node(node)},
                     {"hardware", found.at("hardware")},
                     {"gpus", found.at("gpus")},
                     {"reduce_threads", found.at("reduce_threads")}});
  }
  return {{"ranks", std::move(ranks)},
          {"nodes", std::move(nodes)},
          {"link_costs", to_json(report.costs)},
          {"node_rates", report.costs.node_rates},
          {"link_costs_source", report.costs_source},
          {"predictions", predictions(CostModel(grid, report.costs))}};
}

std::string to_text(const json& report) {
  std::string text;
  const auto out = std::back_inserter(text);
  fmt::format_to(out, "{} ranks on {} nodes\n\n rank  node  local  cross\n", report["ranks"].size(),
                 report["nodes"].size());
  for (const json& rank : report["ranks"]) {
    fmt::format_to(out, "{:>5} {:>5} {:>6} {:>6}\n", rank["rank"].get<int>(),
                   rank["node"].get<int>(), rank["local_rank"].get<int>(),
                   rank["cross_rank"].get<int>());
  }
  for (const json& node : report["nodes"]) {
    fmt::format_to(out, "\nnode {} ({})\n", node["node"].get<int>(), node["id"].get<std::string>());
    append_hardware(text, node["hardware"]);
    fmt::format_to(out, "  {} threads help each rank with reductions\n",
                   node["reduce_threads"].get<int>());
    text += gpus_to_text(node["gpus"], node["hardware"]);
  }
  fmt::format_to(out, "\n\nLink costs ({})\n\n", report["link_costs_source"].get<std::string>());
  for (const auto& [key, value] : report["link_costs"].items()) {
    fmt::format_to(out, "{:>28} {:>14.6g}\n", key, value.get<double>());
  }
  for (std::size_t node = 0; node < report["node_rates"].size(); ++node) {
    fmt::format_to(out, "{:>28} {:>14.6g}\n", fmt::format("link of node {}", node),
                   report["node_rates"][node].get<double>());
  }
  text += "\nPredicted time of an all-reduce (us)\n\n";
  append_predictions(text, report["predictions"]);
  return text;
}

}  // namespace kolo
