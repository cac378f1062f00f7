// kolo-topo: who sits where, what the nodes have, and which algorithm would be chosen.

#include <chrono>
#include <cstdio>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "comm/base/error.h"
#include "comm/base/log.h"
#include "comm/rendezvous/rendezvous_factory.h"
#include "runtime/topo_gpus.h"
#include "runtime/topo_report.h"
#include "topology/gpu_discovery.h"
#include "topology/link_costs.h"

namespace kolo {
namespace {

struct TopoOptions {
  bool json = false;
  std::string node_id;
  std::string link_costs;
  std::int64_t connect_timeout_ms = 60'000;
};

TopoOptions parse(CLI::App& app, int argc, char** argv) {
  TopoOptions options;
  app.add_flag("--json", options.json, "Print one JSON object instead of tables");
  app.add_option("--node-id", options.node_id, "Name of this node instead of host name and boot id")
      ->envname("KOLO_NODE_ID");
  app.add_option(
         "--link-costs", options.link_costs,
         "What links cost where it differs from the values below: KEY=VALUE, comma-separated")
      ->envname("KOLO_LINK_COSTS")
      ->default_str(to_string(LinkCosts{}));
  app.add_option("--connect-timeout-ms", options.connect_timeout_ms,
                 "Give up if not all ranks have come after this many milliseconds")
      ->envname("KOLO_CONNECT_TIMEOUT_MS")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.parse(argc, argv);
  return options;
}

LinkCosts link_costs_from(const std::string& text) {
  try {
    return parse_link_costs(text);
  } catch (const std::invalid_argument& error) {
    throw KoloError(
        Error{.code = ErrorCode::kConfig, .verb = {}, .bucket = {}, .what = error.what()});
  }
}

/// What this machine has, for the ranks on it: `TopoReport::nodes`, as text.
std::string look_at_node(const std::vector<int>& ranks) {
  const HardwareSnapshot hardware = discover_hardware();
  const nlohmann::json node = {{"hardware", to_json(hardware)},
                               {"gpus", gpus_to_json(discover_gpus(), hardware, ranks)}};
  return node.dump();
}

void report_topology(const TopoOptions& options) {
  const LinkCosts costs = link_costs_from(options.link_costs);
  const auto rendezvous =
      rendezvous_from_environment(std::chrono::milliseconds{options.connect_timeout_ms});
  const ProcessGrid grid(rendezvous->all_gather(node_identity(options.node_id)));
  const int rank = rendezvous->rank();
  log::set_identity(rank, grid.node_id(grid.node(rank)));

  // One rank looks at its node for all of the node's ranks.
  const int node = grid.node(rank);
  const std::vector<std::string> gathered = rendezvous->all_gather(
      grid.leader(node) == rank ? look_at_node(grid.ranks_of_node(node)) : std::string());
  if (rank != 0) return;
  std::vector<nlohmann::json> nodes;
  for (int each = 0; each < grid.num_nodes(); ++each) {
    const auto leader = static_cast<std::size_t>(grid.leader(each));
    nodes.push_back(nlohmann::json::parse(gathered[leader]));
  }
  const nlohmann::json report =
      to_json(TopoReport{.grid = grid, .nodes = std::move(nodes), .costs = costs});
  const std::string text = options.json ? report.dump(2) + "\n" : to_text(report);
  std::fputs(text.c_str(), stdout);
}

int run(int argc, char** argv) {
  CLI::App app{"Shows where the ranks of a job sit and which all-reduce would be chosen.",
               "kolo-topo"};
  try {
    report_topology(parse(app, argc, argv));
    return 0;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : exit_status(ErrorCode::kUsage);
  } catch (const KoloError& error) {
    log::error(error.what());
    return exit_status(error.error().code);
  } catch (const std::exception& error) {
    log::error(error.what());
    return exit_status(ErrorCode::kInternal);
  }
}

}  // namespace
}  // namespace kolo

int main(int argc, char** argv) { return kolo::run(argc, argv); }
