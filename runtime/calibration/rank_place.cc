#include "runtime/calibration/rank_place.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>

#include <fmt/format.h>
#include <xxhash.h>

#include "topology/discovery.h"

namespace kolo {
namespace {

constexpr char kFieldEnd = '\n';

std::string to_text(const RankPlace& place) {
  return place.machine + kFieldEnd + place.links + kFieldEnd + to_text(place.cores);
}

RankPlace place_of(const std::string& text) {
  const std::size_t first = text.find(kFieldEnd), second = text.find(kFieldEnd, first + 1);
  return {.cores = core_use_of(text.substr(second + 1)),
          .machine = text.substr(0, first),
          .links = text.substr(first + 1, second - first - 1)};
}

/// Returns the number of distinct cores that these ranks may use, at least one.
std::size_t cores_together(std::span<const RankPlace> places, const std::vector<int>& ranks) {
  std::set<int> cores;
  for (int rank : ranks) {
    const CoreUse& use = places[static_cast<std::size_t>(rank)].cores;
    cores.insert(use.cores.begin(), use.cores.end());
  }
  return std::max<std::size_t>(1, cores.size());
}

}  // namespace

std::string own_place() {
  return to_text(
      {.cores = own_core_use(), .machine = machine_identity(), .links = link_identity()});
}

std::vector<RankPlace> places_of(const std::vector<std::string>& texts) {
  std::vector<RankPlace> places;
  for (const std::string& text : texts) places.push_back(place_of(text));
  return places;
}

CoreSharers core_sharers(std::span<const RankPlace> places, const ProcessGrid& grid, int rank) {
  const RankPlace& own = places[static_cast<std::size_t>(rank)];
  CoreSharers sharers;
  for (int other = 0; other < grid.world_size(); ++other) {
    const RankPlace& place = places[static_cast<std::size_t>(other)];
    if (grid.same_node(other, rank)) sharers.node.push_back(place.cores);
    if (place.machine == own.machine) sharers.machine.push_back(place.cores);
  }
  return sharers;
}

double rank_cores(std::span<const RankPlace> places) {
  std::map<std::string, std::vector<int>> ranks_of_machine;
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    ranks_of_machine[places[rank].machine].push_back(static_cast<int>(rank));
  }
  double fewest = 1;
  for (const auto& [machine, ranks] : ranks_of_machine) {
    const auto cores = static_cast<double>(cores_together(places, ranks));
    fewest = std::min(fewest, cores / static_cast<double>(ranks.size()));
  }
  return fewest;
}

std::string job_shape(std::span<const RankPlace> places, const ProcessGrid& grid) {
  std::string identity;
  for (int node = 0; node < grid.num_nodes(); ++node) {
    const std::vector<int>& ranks = grid.ranks_of_node(node);
    identity += fmt::format("{}\n{}\n{} {}\n", short_node_name(grid.node_id(node)),
                            places[static_cast<std::size_t>(ranks.front())].links, ranks.size(),
                            cores_together(places, ranks));
  }
  return fmt::format("{} ranks on {} nodes, {:016x}", grid.world_size(), grid.num_nodes(),
                     static_cast<std::uint64_t>(XXH3_64bits(identity.data(), identity.size())));
}

}  // namespace kolo
