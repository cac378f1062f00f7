#include "runtime/calibration/calibration.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <xxhash.h>

#include "comm/base/log.h"
#include "runtime/calibration/calibration_file.h"
#include "runtime/calibration/link_meter.h"
#include "runtime/calibration/probe_wait.h"
#include "runtime/wait/core_use.h"
#include "topology/discovery.h"

namespace kolo {
namespace {

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

/// What has changed, for people.
std::string describe(const LinkChange& change) {
  switch (change.what) {
    case LinkChange::What::kTrip:
      return fmt::format("messages took {:.1f} us from node to node, and take {:.1f}",
                         change.before, change.now);
    case LinkChange::What::kRate:
      break;
  }
  return fmt::format("nodes {} and {} exchanged {:.4g} bytes per us, and exchange {:.4g}",
                     change.node, change.node + 1, change.before, change.now);
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
  const std::string path = from_rank_0(rendezvous, file.path());
  const std::string remembered = from_rank_0(rendezvous, file.link_costs().value_or(""));
  const double own_cores = rank_cores(rendezvous.all_gather(machine_identity()), cores);
  const auto node_ranks = static_cast<std::size_t>(grid.local_size(rendezvous.rank()));
  LinkMeter meter(rendezvous, transport, grid,
                  {.transport = limits,
                   .shares_cores = own_cores < 1 || granted_cores() < node_ranks,
                   .connect_timeout = options.connect_timeout},
                  own_cores);

  const SteadyClock clock;
  const Stopwatch watch(clock);
  std::string costs = remembered, source = "read from " + path;
  std::optional<LinkChange> change;
  if (!remembered.empty() && grid.num_nodes() > 1) {
    change = meter.look(parse_link_costs(remembered));
    source += fmt::format(", looked over in {:.0f} ms", watch.us() / 1e3);
  }
  if (remembered.empty() || change) {
    costs = from_rank_0(rendezvous, to_string(meter.measure()));
    source = fmt::format("measured in {:.0f} ms", watch.us() / 1e3);
    file.remember_link_costs(costs);
  }
  if (change) {
    source += fmt::format("; {} is outlived: {}", path, describe(*change));
    if (decides) log::info("what links cost is " + source);
  }
  result.source = from_rank_0(rendezvous, source);
  result.costs = parse_link_costs(options.link_costs, parse_link_costs(costs));
  return result;
}

}  // namespace kolo
