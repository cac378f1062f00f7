#include "benchmarks/sim_check.h"

#include <algorithm>
#include <cmath>
#include <fstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "comm/base/check.h"

namespace kolo::bench {
namespace {

[[noreturn]] void fail(ErrorCode code, std::string what) {
  throw KoloError({.code = code, .what = std::move(what)});
}

MeasuredRow to_row(const nlohmann::json& json, const std::string& column) {
  MeasuredRow row{
      .bytes = json.at("size"),
      .dtype = DType::kFloat32,
      .algorithm = json.at("algorithm"),
      .ranks = json.at("ranks"),
      .nodes = json.at("nodes"),
      .placement = json.at("memory") == "arena" ? Placement::kInPlace : Placement::kUser,
      .time_us = json.at(column)};
  const std::string name = json.at("dtype");
  const auto dtype = parse_dtype(name);
  if (!dtype) fail(ErrorCode::kData, "no dtype '" + name + "'");
  row.dtype = *dtype;
  return row;
}

/// The value in [low, high], on a logarithmic scale, at which a rising function is nearest to
/// `wanted`.
template <typename Function>
double solve(double low, double high, double wanted, Function rising) {
  for (int i = 0; i < 40; ++i) {
    const double middle = std::sqrt(low * high);
    (rising(middle) < wanted ? low : high) = middle;
  }
  return std::sqrt(low * high);
}

/// Bytes through the busiest direction of any node's link.
std::size_t busiest_link(const SimulatorSchedules& schedules, const ProcessGrid& grid) {
  std::vector<std::size_t> out(static_cast<std::size_t>(grid.num_nodes())), in(out);
  for (int rank = 0; rank < grid.world_size(); ++rank) {
    for (const SimulatorSchedules::Step& step : schedules.of_rank(rank).steps) {
      if (step.kind != StepKind::kSend || grid.same_node(rank, step.peer)) continue;
      out[static_cast<std::size_t>(grid.node(rank))] += step.bytes;
      in[static_cast<std::size_t>(grid.node(step.peer))] += step.bytes;
    }
  }
  return std::max(*std::max_element(out.begin(), out.end()),
                  *std::max_element(in.begin(), in.end()));
}

}  // namespace

std::vector<MeasuredRow> read_measured(const std::string& file, const std::string& column) {
  std::ifstream stream(file);
  if (!stream) fail(ErrorCode::kIo, "cannot read " + file);
  std::vector<MeasuredRow> rows;
  try {
    for (const nlohmann::json& json : nlohmann::json::parse(stream)) {
      const bool is_on_host = json.at("memory") == "arena" || json.at("memory") == "user";
      if (json.at("system") == "kolo" && is_on_host) rows.push_back(to_row(json, column));
    }
  } catch (const nlohmann::json::exception& e) {
    fail(ErrorCode::kData, fmt::format("{}: not the JSON of kolo-bench ({})", file, e.what()));
  }
  if (rows.empty()) fail(ErrorCode::kData, file + ": no rows of kolo in memory of the host");
  return rows;
}

double predict_us(const MeasuredRow& row, const MachineCosts& costs,
                  const CompileOptions& compile) {
  if (row.nodes < 1 || row.ranks % row.nodes != 0) {
    fail(ErrorCode::kData, fmt::format("{} ranks do not fill {} nodes", row.ranks, row.nodes));
  }
  CompileOptions options = compile;
  options.algorithm = row.algorithm;
  Cluster cluster({.nodes = row.nodes,
                   .ranks_per_node = row.ranks / row.nodes,
                   .costs = costs,
                   .compile = options,
                   .placement = row.placement,
                   .full = true});
  const BucketLayout layout = cluster.layout(row.bytes / size_of(row.dtype), row.dtype);
  const double once_us = cluster.run({layout}, {0})[0];
  const std::size_t busiest = busiest_link(cluster.schedules(layout), cluster.grid());
  return std::max(once_us, static_cast<double>(busiest) / costs.links.network.bytes_per_us);
}

MachineCosts fit_network(const std::vector<MeasuredRow>& rows, MachineCosts costs,
                         const CompileOptions& compile, std::vector<std::size_t>& fitted) {
  std::size_t least = rows.size(), most = rows.size();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].nodes < 2) continue;
    if (least == rows.size() || rows[i].bytes < rows[least].bytes) least = i;
    if (most == rows.size() || rows[i].bytes > rows[most].bytes) most = i;
  }
  if (least == most) fail(ErrorCode::kData, "to fit takes two sizes measured between nodes");
  NetworkCost& network = costs.links.network;
  // Each depends little on the other, so they settle at once.
  for (int round = 0; round < 4; ++round) {
    network.latency_us = solve(1e-3, 1e6, rows[least].time_us, [&](double latency_us) {
      network.latency_us = latency_us;
      return predict_us(rows[least], costs, compile);
    });
    network.bytes_per_us = 1 / solve(1e-7, 1e3, rows[most].time_us, [&](double us_per_byte) {
                             network.bytes_per_us = 1 / us_per_byte;
                             return predict_us(rows[most], costs, compile);
                           });
  }
  fitted = {least, most};
  return costs;
}

}  // namespace kolo::bench
