#include "runtime/tools/topo_report.h"

#include <nlohmann/json.hpp>

#include "comm/algorithms/all_reduce/all_reduce.h"
#include "comm/algorithms/compile.h"

namespace kolo {
namespace {

using nlohmann::json;

constexpr std::size_t kSmallest = 4;
constexpr std::size_t kLargest = std::size_t{1} << 30;

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

/// Predicts the time of each all-reduce algorithm that "auto" considers for host memory, and what
/// "auto" chooses.
json predictions(const ProcessGrid& grid, const LinkCosts& costs) {
  const CollectiveSpec spec = CollectiveSpec::all_reduce(grid.world_size());
  const CompileOptions options{.link_costs = costs};
  json rows = json::array();
  for (std::size_t bytes = kSmallest; bytes <= kLargest; bytes *= 4) {
    const auto layout_of = [&](DType dtype, MemoryKind memory) {
      return BucketLayout{.count = bytes / size_of(dtype), .dtype = dtype, .memory = memory};
    };
    const BucketLayout layout = layout_of(DType::kFloat32, MemoryKind::kHost);
    const BucketLayout of_16_bits = layout_of(DType::kFloat16, MemoryKind::kHost);
    const BucketLayout on_device = layout_of(DType::kFloat32, MemoryKind::kDevice);
    const CompileContext context{spec, layout, grid, options};
    json times = json::object();
    for (const AllReduce& each : all_reduces()) {
      if (each.is_for_auto(MemoryKind::kHost)) times[each.name()] = each.price(context).us;
    }
    const Choice chosen = choose(context);
    rows.push_back(
        {{"bytes", bytes},
         {"chosen", chosen.algorithm->name()},
         {"chunk_bytes", chosen.algorithm->chunk_bytes(context)},
         {"fusion_bytes", cheapest_bucket_bytes(bytes, MemoryKind::kHost, grid, options)},
         {"chosen_16bit", choose({spec, of_16_bits, grid, options}).algorithm->name()},
         {"chosen_device", choose({spec, on_device, grid, options}).algorithm->name()},
         {"us", std::move(times)}});
  }
  return rows;
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
                     {"name", short_node_name(grid.node_id(node))},
                     {"ranks", grid.ranks_of_node(node)},
                     {"hardware", found.at("hardware")},
                     {"gpus", found.at("gpus")},
                     {"network", found.at("network")},
                     {"reduce_threads", found.at("reduce_threads")}});
  }
  return {{"ranks", std::move(ranks)},
          {"nodes", std::move(nodes)},
          {"link_costs", to_json(report.costs)},
          {"node_rates", report.costs.node_rates},
          {"link_costs_source", report.costs_source},
          {"start_up_rounds", report.start_up_rounds},
          {"predictions", predictions(grid, report.costs)}};
}

}  // namespace kolo
