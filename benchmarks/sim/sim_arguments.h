#pragma once

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "benchmarks/common/table.h"
#include "benchmarks/sim/sim_cluster.h"
#include "runtime/options/version.h"
#include "runtime/tools/command_line.h"
#include "topology/link_costs.h"

namespace kolo::bench {

/// Share of TCP payload in the bits of Ethernet frames of 1500 bytes.
inline constexpr double kPayloadShare = 0.957;

inline const std::map<std::string, std::pair<Placement, MemoryKind>> kMemories = {
    {"arena", {Placement::kInPlace, MemoryKind::kHost}},
    {"user", {Placement::kUser, MemoryKind::kHost}},
    {"device", {Placement::kInPlace, MemoryKind::kDevice}},
    {"device-user", {Placement::kStaged, MemoryKind::kDevice}}};

/// Values of the command-line options.
struct Arguments {
  std::vector<int> ranks = {8};
  int ranks_per_node = 1, nodes = 0, batch = 0;
  std::vector<double> gbit;
  std::string link_costs, memory = "arena", json, wire, dtype = "float32";
  std::vector<std::string> collectives, measured;
  std::vector<std::string> algorithms = {"auto"}, bytes = {"4", "1K", "64K", "1M", "16M", "64M"};
  std::vector<std::string> models = {"resnet50"}, compressions = {"none"};
  std::string chunk_bytes, fusion_bytes, eager_bytes;
  ClusterSpec cluster;
  double tflops = 60, compute_ms = 0;
  std::string column = "median_us";
};

inline DType dtype_of(const std::string& name) {
  const auto dtype = parse_dtype(name);
  if (!dtype) throw UsageError("no dtype '" + name + "'");
  return *dtype;
}

inline std::size_t parse_size(std::string_view flag, const std::string& text) {
  return parse_sizes(flag, {text}).front();
}

/// One machine of the sweep.
struct Point {
  int ranks;
  double gbit;  // 0: taken from the link costs
  std::string algorithm;
};

/// Returns all combinations of machines. Ranks change fastest.
inline std::vector<Point> points(const Arguments& arguments) {
  std::vector<int> ranks = arguments.ranks;
  if (arguments.nodes > 0) ranks = {arguments.nodes * arguments.ranks_per_node};
  std::vector<Point> result;
  for (double gbit : arguments.gbit.empty() ? std::vector<double>{0} : arguments.gbit) {
    for (const std::string& algorithm : arguments.algorithms) {
      for (int count : ranks) result.push_back({count, gbit, algorithm});
    }
  }
  return result;
}

/// Returns the link costs of a measured row, unless the command line gives others.
inline LinkCosts link_costs(const Arguments& arguments, const std::string& measured) {
  try {
    return parse_link_costs(arguments.link_costs, parse_link_costs(measured));
  } catch (const std::invalid_argument& e) {
    refuse(ErrorCode::kConfig, e.what());
  }
}

inline ClusterSpec cluster_spec(const Arguments& arguments, const Point& point) {
  ClusterSpec spec = arguments.cluster;
  spec.ranks_per_node = std::min(arguments.ranks_per_node, point.ranks);
  if (spec.ranks_per_node < 1 || point.ranks % spec.ranks_per_node != 0) {
    refuse(ErrorCode::kConfig,
           fmt::format("{} ranks do not fill nodes of {}", point.ranks, arguments.ranks_per_node));
  }
  spec.nodes = point.ranks / spec.ranks_per_node;
  spec.costs.links = link_costs(arguments, "");
  if (point.gbit > 0) {
    const double bytes_per_us = point.gbit * 125 * kPayloadShare;
    spec.costs.links.network.bytes_per_us = bytes_per_us;
    spec.costs.links.native_network.bytes_per_us = bytes_per_us;
    spec.costs.links.node_rates.clear();
  }
  spec.compile.algorithm = point.algorithm;
  if (!arguments.chunk_bytes.empty()) {
    spec.compile.chunk_bytes = parse_size("--chunk-bytes", arguments.chunk_bytes);
    spec.compile.device_chunk_bytes = spec.compile.chunk_bytes;
  }
  if (!arguments.eager_bytes.empty()) {
    spec.compile.eager_bytes = parse_size("--eager-bytes", arguments.eager_bytes);
  }
  std::tie(spec.placement, spec.memory) = kMemories.at(arguments.memory);
  return spec;
}

/// Returns the rate of a node's link in Gbit/s.
inline double gbit_of(const LinkCosts& links) {
  return links.network.bytes_per_us / 125 / kPayloadShare;
}

/// Returns the JSON row of a prediction: `fields` plus the fields that all commands share.
inline nlohmann::json row_of(const ClusterSpec& spec, const Arguments& arguments,
                             nlohmann::json fields) {
  fields.update({{"system", "sim"},
                 {"ranks", spec.nodes * spec.ranks_per_node},
                 {"nodes", spec.nodes},
                 {"memory", arguments.memory},
                 {"network_gbit", gbit_of(spec.costs.links)},
                 {"link_costs", to_string(spec.costs.links)}});
  return fields;
}

/// Makes the table of a command. `columns` follow the columns that describe the machine.
inline Table make_table(const std::string& command, std::vector<Column> columns,
                        const std::string& first = "size") {
  std::vector<Column> all = {{first, first == "size" ? 10 : -10},
                             {"ranks", 6},
                             {"nodes", 6},
                             {"network_gbit", 8, 3, "Gbit/s"}};
  all.insert(all.end(), columns.begin(), columns.end());
  const std::string note = command == "check" ? "" : ": predicted, nothing was measured";
  return {/*speaks=*/true, {fmt::format("kolo-sim {}, kolo {}{}", command, kVersion, note)}, all};
}

}  // namespace kolo::bench
