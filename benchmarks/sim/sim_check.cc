#include "benchmarks/sim/sim_check.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "comm/algorithms/all_reduce/all_reduce.h"
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
      .time_us = json.at(column),
      .link_costs = json.value("link_costs", std::string())};
  const std::string name = json.at("dtype");
  const auto dtype = parse_dtype(name);
  if (!dtype) fail(ErrorCode::kData, "no dtype '" + name + "'");
  row.dtype = *dtype;
  return row;
}

/// Bytes of an iteration on the busiest direction of any node's link.
double busiest_link_us(const SimulatorSchedules& schedules, const ProcessGrid& grid,
                       const LinkCosts& costs) {
  std::vector<double> out(static_cast<std::size_t>(grid.num_nodes())), in(out);
  for (int rank = 0; rank < grid.world_size(); ++rank) {
    for (const SimulatorSchedules::Step& step : schedules.of_rank(rank).steps) {
      if (step.kind != StepKind::kSend || grid.same_node(rank, step.peer)) continue;
      const auto bytes = static_cast<double>(step.bytes);
      for (const auto& [direction, node] :
           {std::pair(&out, grid.node(rank)), std::pair(&in, grid.node(step.peer))}) {
        (*direction)[static_cast<std::size_t>(node)] += bytes / costs.node_rate(node);
      }
    }
  }
  return std::max(*std::max_element(out.begin(), out.end()),
                  *std::max_element(in.begin(), in.end()));
}

/// The chunk size that the runtime uses by default.
std::size_t auto_chunk_bytes(const MeasuredRow& row, const LinkCosts& costs) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes(
      std::vector<int>(static_cast<std::size_t>(row.nodes), row.ranks / row.nodes));
  const BucketLayout layout{
      .count = row.bytes / size_of(row.dtype), .dtype = row.dtype, .placement = row.placement};
  const Goal goal = Goal::all_reduce(row.ranks);
  const CompileOptions options{.link_costs = costs};
  return find_all_reduce(row.algorithm).chunk_bytes({goal, layout, grid, options});
}

}  // namespace

std::vector<MeasuredRow> read_measured(const std::string& file, const std::string& column) {
  std::ifstream stream(file);
  if (!stream || std::filesystem::is_directory(file)) {
    fail(ErrorCode::kIo, "cannot read " + file);
  }
  std::vector<MeasuredRow> rows;
  try {
    for (const nlohmann::json& json : nlohmann::json::parse(stream)) {
      const bool is_on_host = json.at("memory") == "arena" || json.at("memory") == "user";
      if (json.at("system") == "kolo" && is_on_host) rows.push_back(to_row(json, column));
    }
  } catch (const nlohmann::json::exception& e) {
    fail(ErrorCode::kData, fmt::format("{}: not the JSON of kolo-bench ({})", file, e.what()));
  }
  if (rows.empty()) fail(ErrorCode::kData, file + ": no rows of kolo in host memory");
  return rows;
}

double predict_us(const MeasuredRow& row, const MachineCosts& costs,
                  const CompileOptions& compile) {
  if (row.nodes < 1 || row.ranks % row.nodes != 0) {
    fail(ErrorCode::kData, fmt::format("{} ranks do not fill {} nodes", row.ranks, row.nodes));
  }
  CompileOptions options = compile;
  options.algorithm = row.algorithm;
  if (options.chunk_bytes == 0) options.chunk_bytes = auto_chunk_bytes(row, costs.links);
  Cluster cluster({.nodes = row.nodes,
                   .ranks_per_node = row.ranks / row.nodes,
                   .costs = costs,
                   .compile = options,
                   .placement = row.placement,
                   .full = true});
  const BucketLayout layout = cluster.layout(row.bytes / size_of(row.dtype), row.dtype);
  const double once_us = cluster.run({layout}, {0})[0];
  return std::max(once_us, busiest_link_us(cluster.schedules(layout), cluster.grid(), costs.links));
}

}  // namespace kolo::bench
