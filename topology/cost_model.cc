#include "topology/cost_model.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <stdexcept>
#include <string_view>
#include <vector>

// How a round is priced. Inside a node every pair of ranks has a memory link of its own. Between
// nodes all ranks of a node share its link, which sends and receives at the same time. The messages
// of one rank follow each other (one port), so that each costs it one latency.
//
//   ring, 2 nodes x 2 ranks      0 -> 1 => 2 -> 3 => 0      -> memory, => network
//   one round                    max(memory(S/4), network(1 message of S/4 per node))

namespace kolo {
namespace {

// Preferred first among equals: `direct` gives the same bits whatever the bucket's limits.
constexpr std::array<std::string_view, 4> kFlatAlgorithms = {"direct", "ring", "halving_doubling",
                                                             "tree"};
constexpr std::string_view kHierarchicalPrefix = "hierarchical:direct,";

double transfer_us(const LinkCost& link, double bytes) {
  return link.latency_us + bytes / link.bytes_per_us;
}

/// One round in which some ranks send `bytes` each, one message per sender.
class Round {
 public:
  Round(const ProcessGrid& grid, const LinkCosts& costs)
      : grid_(grid),
        costs_(costs),
        sent_(static_cast<std::size_t>(grid.num_nodes())),
        received_(sent_) {}

  void add(int from, int to) {
    if (grid_.same_node(from, to)) {
      uses_memory_ = true;
      return;
    }
    const int sent = ++sent_[static_cast<std::size_t>(grid_.node(from))];
    const int received = ++received_[static_cast<std::size_t>(grid_.node(to))];
    busiest_link_ = std::max({busiest_link_, sent, received});
  }

  double time_us(double bytes) const {
    const double memory = uses_memory_ ? transfer_us(costs_.memory, bytes) : 0;
    const double network =
        busiest_link_ > 0 ? transfer_us(costs_.network, busiest_link_ * bytes) : 0;
    return std::max(memory, network);
  }

 private:
  const ProcessGrid& grid_;
  const LinkCosts& costs_;
  std::vector<int> sent_;
  std::vector<int> received_;
  int busiest_link_ = 0;
  bool uses_memory_ = false;
};

}  // namespace

double CostModel::ring_us(std::size_t bytes) const {
  const int n = grid_.world_size();
  if (n == 1) return 0;
  Round round(grid_, costs_);
  for (int rank = 0; rank < n; ++rank) round.add(rank, (rank + 1) % n);
  return 2.0 * (n - 1) * round.time_us(static_cast<double>(bytes) / n);
}

double CostModel::direct_us(std::size_t bytes) const {
  const int n = grid_.world_size();
  const double shard = static_cast<double>(bytes) / n;
  double phase = 0;
  for (int node = 0; node < grid_.num_nodes(); ++node) {
    const int local = static_cast<int>(grid_.ranks_of_node(node).size());
    const int remote = n - local;
    if (local > 1) {
      // On a single node the others' memory is read in place: flags instead of messages.
      const int latencies = remote == 0 ? 1 : local - 1;
      phase = std::max(phase, latencies * costs_.memory.latency_us +
                                  (local - 1) * shard / costs_.memory.bytes_per_us);
    }
    if (remote > 0) {
      phase = std::max(phase, remote * costs_.network.latency_us +
                                  local * remote * shard / costs_.network.bytes_per_us);
    }
  }
  return 2 * phase;  // Reduce-scatter and all-gather.
}

double CostModel::halving_doubling_us(std::size_t bytes) const {
  const int n = grid_.world_size();
  const int power = static_cast<int>(std::bit_floor(static_cast<unsigned>(n)));
  double total = 0;
  if (n > power) {  // The ranks above the power of two hand their part down and get the result.
    Round fold(grid_, costs_);
    for (int rank = power; rank < n; ++rank) fold.add(rank, rank - power);
    total += fold.time_us(static_cast<double>(bytes));
  }
  double part = static_cast<double>(bytes);
  for (int distance = power / 2; distance >= 1; distance /= 2) {
    part /= 2;
    Round exchange(grid_, costs_);
    for (int rank = 0; rank < power; ++rank) exchange.add(rank, rank ^ distance);
    total += exchange.time_us(part);
  }
  return 2 * total;
}

double CostModel::tree_us(std::size_t bytes) const {
  const int n = grid_.world_size();
  double total = 0;
  for (int distance = 1; distance < n; distance *= 2) {
    Round round(grid_, costs_);
    for (int rank = distance; rank < n; rank += 2 * distance) round.add(rank, rank - distance);
    total += round.time_us(static_cast<double>(bytes));
  }
  return 2 * total;
}

double CostModel::hierarchical_us(std::size_t bytes, const std::string& cross) const {
  // All parts travel at once over each node's link: as if one rank per node had all the bytes.
  const std::vector<int> one_rank_each(static_cast<std::size_t>(grid_.num_nodes()), 1);
  const CostModel between(ProcessGrid::with_node_sizes(one_rank_each), costs_);
  double local = 0;
  for (int node = 0; node < grid_.num_nodes(); ++node) {
    const double size = static_cast<double>(grid_.ranks_of_node(node).size());
    if (size == 1) continue;
    const double read = (size - 1) / size * static_cast<double>(bytes);
    local = std::max(local, transfer_us(costs_.memory, read));
  }
  return 2 * local + between.flat_us(cross, bytes);
}

double CostModel::flat_us(const std::string& algorithm, std::size_t bytes) const {
  if (algorithm == "ring") return ring_us(bytes);
  if (algorithm == "direct") return direct_us(bytes);
  if (algorithm == "halving_doubling") return halving_doubling_us(bytes);
  if (algorithm == "tree") return tree_us(bytes);
  throw std::invalid_argument("unknown algorithm '" + algorithm + "' in a flat group");
}

double CostModel::predict_us(const std::string& algorithm, std::size_t bytes) const {
  if (algorithm == "hierarchical") {
    double best = std::numeric_limits<double>::infinity();
    for (std::string_view cross : kFlatAlgorithms) {
      best = std::min(best, hierarchical_us(bytes, std::string(cross)));
    }
    return best;
  }
  if (algorithm.starts_with(kHierarchicalPrefix)) {
    return hierarchical_us(bytes, algorithm.substr(kHierarchicalPrefix.size()));
  }
  if (algorithm == "native" || algorithm.starts_with("hierarchical:native,")) {
    return device_us(algorithm, bytes, kDeviceUnitBytes);
  }
  return flat_us(algorithm, bytes);
}

std::vector<std::string> CostModel::algorithms() {
  std::vector<std::string> names(kFlatAlgorithms.begin(), kFlatAlgorithms.end());
  for (std::string_view cross : kFlatAlgorithms) {
    names.push_back(std::string(kHierarchicalPrefix).append(cross));
  }
  return names;
}

bool CostModel::is_reproducible(const std::string& algorithm) {
  return algorithm == "direct" || algorithm == "hierarchical:direct,direct";
}

std::string CostModel::choose(std::size_t bytes, bool reproducible) const {
  std::string chosen;
  double best = std::numeric_limits<double>::infinity();
  for (const std::string& name : algorithms()) {
    if (reproducible && !is_reproducible(name)) continue;
    const double predicted = predict_us(name, bytes);
    if (predicted < best) {
      best = predicted;
      chosen = name;
    }
  }
  return chosen;
}

}  // namespace kolo
