// kolo-topo shows the ranks' nodes, the nodes' hardware, the chosen algorithms, and their steps.

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "comm/rendezvous/launch.h"
#include "runtime/engine/connect.h"
#include "runtime/options/version.h"
#include "runtime/tools/command_line.h"
#include "runtime/tools/schedule_command.h"
#include "runtime/tools/topo_report.h"
#include "topology/gpu_discovery.h"

namespace kolo {
namespace {

struct TopoOptions {
  bool json = false;
  Options runtime;
};

/// The runtime options that determine the nodes of ranks and the link costs.
constexpr std::array<std::string_view, 7> kRuntimeOptions = {
    "node_id",          "arena_bytes",     "link_costs",    "calibrate",
    "calibration_file", "connect_timeout", "reduce_threads"};

/// Discovers this machine's hardware. Returns its element of `TopoReport::nodes` as text.
std::string look_at_node(const Connection& connection) {
  const HardwareSnapshot hardware = discover_hardware();
  const nlohmann::json node = {
      {"hardware", to_json(hardware)},
      {"gpus", gpus_to_json(discover_gpus(), hardware)},
      {"network",
       {{"interface", connection.network.interface}, {"address", connection.network.address}}},
      {"reduce_threads", connection.reduce_threads}};
  return node.dump();
}

void report_topology(const TopoOptions& options) {
  const auto rendezvous = rendezvous_from_environment(options.runtime.connect_timeout);
  const int rank = rendezvous->rank();
  Connection connection = connect(*rendezvous, options.runtime);
  const ProcessGrid& grid = connection.grid;

  // One rank of each node discovers its hardware.
  const int node = grid.node(rank);
  const std::vector<std::string> gathered =
      rendezvous->all_gather(grid.leader(node) == rank ? look_at_node(connection) : std::string());
  connection.transport->shutdown(/*orderly=*/true);
  if (rank != 0) return;
  std::vector<nlohmann::json> nodes;
  for (int each = 0; each < grid.num_nodes(); ++each) {
    const auto leader = static_cast<std::size_t>(grid.leader(each));
    nodes.push_back(nlohmann::json::parse(gathered[leader]));
  }
  const nlohmann::json report = to_json(TopoReport{.grid = grid,
                                                   .nodes = std::move(nodes),
                                                   .costs = connection.calibration.costs,
                                                   .costs_source = connection.calibration.source,
                                                   .start_up_rounds = connection.start_up_rounds});
  const std::string text = options.json ? report.dump(2) + "\n" : to_text(report);
  std::fputs(text.c_str(), stdout);
}

int run(int argc, char** argv) {
  CLI::App app{"Shows where the ranks of a job sit and which all-reduce would be chosen.",
               "kolo-topo"};
  app.set_version_flag("--version", std::string("kolo-topo ") + kVersion);
  TopoOptions options;
  app.add_flag("--json", options.json, "Print one JSON object instead of tables");
  add_runtime_options(app, options.runtime, [](std::string_view name) {
    return std::ranges::find(kRuntimeOptions, name) != kRuntimeOptions.end();
  });
  const ScheduleCommand schedule(app);
  return run_program(app, argc, argv, [&] {
    if (schedule.chosen()) {
      constexpr std::string_view kReader = "kolo-topo without schedule";
      require_read(app, {{"--json", false, kReader}});
      require_runtime_read(
          app, [](std::string_view) { return false; }, kReader);
      schedule.run();
      return true;
    }
    options.runtime = options_from_environment(std::move(options.runtime));
    report_topology(options);
    return true;
  });
}

}  // namespace
}  // namespace kolo

int main(int argc, char** argv) { return kolo::run(argc, argv); }
