#include "topology/gpu_rings.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <tuple>

namespace kolo {
namespace {

constexpr std::size_t kMostGpus = 16;

/// Costs add up; they are weights of a number system, so that one hop of a worse class costs more
/// than any number of better ones on a ring.
using Cost = std::uint64_t;
using Costs = std::vector<std::vector<Cost>>;
constexpr Cost kImpossible = std::numeric_limits<Cost>::max();

/// What makes a hop good, most important first; less is better.
using HopQuality = std::tuple<int, bool, int, PciDistance>;

HopQuality quality_of(const GpuLink& link, PciDistance distance) {
  // Between GPUs that NVLinks join, the distance on the PCI bus does not matter.
  return {-link.nvlinks, !link.peer_access, link.performance_rank,
          link.nvlinks > 0 ? PciDistance::kSelf : distance};
}

Costs hop_costs(const GpuLinks& links, const PciDistances& distances) {
  const std::size_t count = links.size();
  std::vector<std::vector<HopQuality>> qualities(count, std::vector<HopQuality>(count));
  std::vector<HopQuality> classes;
  for (std::size_t a = 0; a < count; ++a) {
    for (std::size_t b = 0; b < count; ++b) {
      if (a == b) continue;
      qualities[a][b] = std::max(quality_of(links[a][b], distances[a][b]),
                                 quality_of(links[b][a], distances[b][a]));
      classes.push_back(qualities[a][b]);
    }
  }
  std::sort(classes.begin(), classes.end());
  classes.erase(std::unique(classes.begin(), classes.end()), classes.end());

  // 17^14, 16 times over, still fits; no machine has as many classes.
  constexpr std::size_t kLastClass = 14;
  Costs costs(count, std::vector<Cost>(count, 0));
  for (std::size_t a = 0; a < count; ++a) {
    for (std::size_t b = 0; b < count; ++b) {
      if (a == b) continue;
      const auto place = static_cast<std::size_t>(
          std::lower_bound(classes.begin(), classes.end(), qualities[a][b]) - classes.begin());
      costs[a][b] = 1;
      for (std::size_t i = 0; i < std::min(place, kLastClass); ++i) costs[a][b] *= kMostGpus + 1;
    }
  }
  return costs;
}

/// The cheapest closed way from 0 through all; of equals the first in lexicographic order.
std::vector<int> cheapest_ring(const Costs& costs) {
  const std::size_t count = costs.size();
  std::vector<int> order(count);
  std::iota(order.begin(), order.end(), 0);
  if (count <= 3 || count > kMostGpus) return order;

  // best[seen][last]: the cheapest way from `last` through all that are not in `seen`, and home.
  const std::size_t all = (std::size_t{1} << count) - 1;
  std::vector<std::vector<Cost>> best(all + 1, std::vector<Cost>(count, kImpossible));
  for (std::size_t last = 0; last < count; ++last) best[all][last] = costs[last][0];
  for (std::size_t seen = all - 1; seen > 0; --seen) {
    for (std::size_t last = 0; last < count; ++last) {
      if ((seen >> last & 1U) == 0) continue;
      for (std::size_t next = 0; next < count; ++next) {
        if ((seen >> next & 1U) != 0) continue;
        const Cost rest = best[seen | std::size_t{1} << next][next];
        if (rest == kImpossible) continue;
        best[seen][last] = std::min(best[seen][last], costs[last][next] + rest);
      }
    }
  }
  std::size_t seen = 1;
  std::size_t last = 0;
  for (std::size_t place = 1; place < count; ++place) {
    for (std::size_t next = 0; next < count; ++next) {
      if ((seen >> next & 1U) != 0) continue;
      const std::size_t with_next = seen | std::size_t{1} << next;
      if (costs[last][next] + best[with_next][next] != best[seen][last]) continue;
      order[place] = static_cast<int>(next);
      seen = with_next;
      last = next;
      break;
    }
  }
  return order;
}

/// Calls visit(from, to) for each hop of a closed order.
template <typename Visit>
void for_each_hop(const std::vector<int>& order, Visit visit) {
  for (std::size_t i = 0; i < order.size(); ++i) {
    visit(static_cast<std::size_t>(order[i]),
          static_cast<std::size_t>(order[(i + 1) % order.size()]));
  }
}

/// NVLinks that every hop has; and whether a hop takes those of a switch.
struct Width {
  int nvlinks = std::numeric_limits<int>::max();
  bool through_switch = false;
};

Width width_of(const std::vector<int>& order, const GpuLinks& links) {
  Width width;
  for_each_hop(order, [&](std::size_t from, std::size_t to) {
    width.nvlinks = std::min({width.nvlinks, links[from][to].nvlinks, links[to][from].nvlinks});
    width.through_switch = width.through_switch || links[from][to].through_switch;
  });
  return width;
}

void take_links(const std::vector<int>& order, int nvlinks, GpuLinks& links) {
  GpuLinks left = links;
  for_each_hop(order, [&](std::size_t from, std::size_t to) {
    left[from][to].nvlinks = links[from][to].nvlinks - nvlinks;
    left[to][from].nvlinks = links[to][from].nvlinks - nvlinks;
  });
  links = std::move(left);
}

}  // namespace

std::vector<GpuRing> build_rings(const GpuLinks& links, const PciDistances& distances) {
  if (links.empty()) return {};
  if (links.size() == 1) return {{.order = {0}, .nvlinks = 0}};
  std::vector<GpuRing> rings;
  GpuLinks left = links;
  while (true) {
    std::vector<int> order = cheapest_ring(hop_costs(left, distances));
    const Width width = width_of(order, left);
    if (width.nvlinks == 0 && !rings.empty()) return rings;
    take_links(order, width.nvlinks, left);
    rings.push_back({.order = std::move(order), .nvlinks = width.nvlinks});
    if (width.nvlinks == 0 || width.through_switch) return rings;
  }
}

std::vector<int> suggest_gpus(const GpuLinks& links, const PciDistances& distances,
                              const std::vector<GpuRing>& rings, int local_size) {
  const std::vector<int>& ring = rings.front().order;
  const std::size_t count = ring.size();
  const auto ranks = static_cast<std::size_t>(local_size);
  if (ranks >= count) {
    std::vector<int> gpus;
    for (std::size_t rank = 0; rank < ranks; ++rank) gpus.push_back(ring[rank * count / ranks]);
    return gpus;
  }
  const Costs costs = hop_costs(links, distances);
  std::vector<int> best;
  Cost best_cost = kImpossible;
  for (std::size_t start = 0; start < count; ++start) {
    std::vector<int> stretch;
    for (std::size_t i = 0; i < ranks; ++i) stretch.push_back(ring[(start + i) % count]);
    Cost cost = 0;
    for_each_hop(stretch, [&](std::size_t from, std::size_t to) { cost += costs[from][to]; });
    if (cost >= best_cost) continue;
    best_cost = cost;
    best = std::move(stretch);
  }
  return best;
}

}  // namespace kolo
