#include "runtime/calibration.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <xxhash.h>

#include "runtime/calibration_file.h"
#include "runtime/link_probe.h"
#include "runtime/probe_wait.h"
#include "runtime/spin_budget.h"
#include "topology/discovery.h"

namespace kolo {
namespace {

constexpr std::string_view kMemoryKeys = "memory_";
constexpr std::string_view kNetworkKeys = "network_";
constexpr std::string_view kNodeRates = "node_rates";

/// What measuring may take of 200 ms in all: the rest is for ranks that begin late, and telling
/// each other.
constexpr std::chrono::milliseconds kMeasureWithin{140};
/// Of it, inside nodes.
constexpr std::chrono::milliseconds kNodeWithin{55};

/// The cores that ranks of one machine have together, wherever each is bound to.
std::size_t cores_together(const std::vector<std::string>& by_rank, const std::vector<int>& ranks) {
  std::set<int> cores;
  for (int rank : ranks) {
    const CoreUse use = core_use_of(by_rank[static_cast<std::size_t>(rank)]);
    cores.insert(use.cores.begin(), use.cores.end());
  }
  return std::max<std::size_t>(1, cores.size());
}

/// Names where the job runs: its machines, the ranks and cores on each.
std::string shape_of(const ProcessGrid& grid, const std::vector<std::string>& cores) {
  std::string identity;
  for (int node = 0; node < grid.num_nodes(); ++node) {
    const std::vector<int>& ranks = grid.ranks_of_node(node);
    identity +=
        fmt::format("{}\n{} {}\n", grid.node_id(node), ranks.size(), cores_together(cores, ranks));
  }
  return fmt::format("{} ranks on {} nodes, {:016x}", grid.world_size(), grid.num_nodes(),
                     static_cast<std::uint64_t>(XXH3_64bits(identity.data(), identity.size())));
}

/// Cores that each rank has to itself on the fullest machine, at most one.
double rank_cores(const std::vector<std::string>& machine_of_rank,
                  const std::vector<std::string>& cores) {
  std::map<std::string, std::vector<int>> ranks_of_machine;
  for (std::size_t rank = 0; rank < machine_of_rank.size(); ++rank) {
    ranks_of_machine[machine_of_rank[rank]].push_back(static_cast<int>(rank));
  }
  double fewest = 1;
  for (const auto& [machine, ranks] : ranks_of_machine) {
    const auto there = static_cast<double>(cores_together(cores, ranks));
    fewest = std::min(fewest, there / static_cast<double>(ranks.size()));
  }
  return fewest;
}

/// `text` of rank 0.
std::string from_rank_0(Rendezvous& rendezvous, const std::string& text) {
  return rendezvous.all_gather(rendezvous.rank() == 0 ? text : std::string()).front();
}

/// What this rank measured, in the keys of link costs.
std::string measure(Transport& transport, const ProcessGrid& grid, const ProbeLimits& limits,
                    const Clock& clock) {
  std::string text;
  LinkCosts costs;
  const auto append = [&](std::string_view keys) {
    text += (text.empty() ? "" : ",") + to_string(costs, keys);
  };
  const TimePoint begin = clock.now();
  const MemorySamples memory =
      probe_node(transport, grid, limits, {.clock = clock, .end = begin + kNodeWithin});
  if (!memory.own_passes.empty()) {
    costs.memory = fit_memory(memory);
    append(kMemoryKeys);
  }
  const NetworkSamples network =
      probe_network(transport, grid, limits, {.clock = clock, .end = begin + kMeasureWithin});
  if (!network.round_trips_us.empty()) {
    costs.network = fit_network(network);
    append(kNetworkKeys);
  }
  if (!network.streams.empty()) {
    costs.node_rates = fit_node_rates(network, grid.node(transport.rank()), grid.num_nodes());
    append(kNodeRates);
  }
  return text;
}

MeasuredCosts parse_measured(const std::string& text) {
  const LinkCosts costs = parse_link_costs(text);
  MeasuredCosts measured;
  if (text.find(kMemoryKeys) != std::string::npos) measured.memory = costs.memory;
  if (text.find(kNetworkKeys) != std::string::npos) measured.network = costs.network;
  measured.node_rates = costs.node_rates;
  return measured;
}

LinkCosts combine(const std::vector<std::string>& by_rank, const ProcessGrid& grid) {
  std::vector<MeasuredCosts> measured;
  for (const std::string& text : by_rank) measured.push_back(parse_measured(text));
  return combine_costs(measured, grid);
}

}  // namespace

Calibration calibrate(Rendezvous& rendezvous, Transport& transport, const ProcessGrid& grid,
                      const TransportLimits& limits, const Options& options) {
  Calibration result{
      .costs = parse_link_costs(options.link_costs), .source = "defaults", .shape = {}};
  const std::vector<std::string> cores = rendezvous.all_gather(to_text(own_core_use()));
  result.shape = shape_of(grid, cores);
  if (options.calibrate == "off" || grid.world_size() == 1) return result;

  const bool decides = rendezvous.rank() == 0;
  // Inside a node no choice changes the bits of a sum, so each run may measure anew.
  const bool remembers = options.calibration_file != "auto" || grid.num_nodes() > 1;
  CalibrationFile file(decides && remembers ? calibration_path(options.calibration_file) : "",
                       result.shape);
  std::string costs = from_rank_0(rendezvous, file.link_costs().value_or(""));
  if (!costs.empty()) {
    result.source = "read from " + from_rank_0(rendezvous, file.path());
  } else {
    const SteadyClock clock;
    const Stopwatch watch(clock);
    const double own_cores = rank_cores(rendezvous.all_gather(machine_identity()), cores);
    const auto node_ranks = static_cast<std::size_t>(grid.local_size(rendezvous.rank()));
    const std::vector<std::string> measured = rendezvous.all_gather(
        measure(transport, grid,
                {.transport = limits,
                 .shares_cores = own_cores < 1 || granted_cores() < node_ranks,
                 .connect_timeout = options.connect_timeout},
                clock));
    LinkCosts combined = combine(measured, grid);
    combined.rank_cores = own_cores;
    costs = from_rank_0(rendezvous, decides ? to_string(combined) : "");
    result.source = from_rank_0(rendezvous, fmt::format("measured in {:.0f} ms", watch.us() / 1e3));
    file.remember_link_costs(costs);
  }
  result.costs = parse_link_costs(options.link_costs, parse_link_costs(costs));
  return result;
}

}  // namespace kolo
