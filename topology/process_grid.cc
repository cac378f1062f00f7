#include "topology/process_grid.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <stdexcept>

namespace kolo {
namespace {

std::vector<std::string> node_ids_for(const std::vector<int>& sizes) {
  std::vector<std::string> ids;
  for (std::size_t node = 0; node < sizes.size(); ++node) {
    if (sizes[node] < 1) throw std::invalid_argument("a node holds at least one rank");
    ids.insert(ids.end(), static_cast<std::size_t>(sizes[node]), "node" + std::to_string(node));
  }
  return ids;
}

std::size_t index(int number) { return static_cast<std::size_t>(number); }

}  // namespace

ProcessGrid::ProcessGrid(const std::vector<std::string>& node_id_of_rank) {
  if (node_id_of_rank.empty()) throw std::invalid_argument("a job has at least one rank");
  std::map<std::string, int> node_of_id;
  for (const std::string& id : node_id_of_rank) {
    const int rank = static_cast<int>(node_of_rank_.size());
    const auto [found, is_new] = node_of_id.try_emplace(id, num_nodes());
    if (is_new) {
      node_ids_.push_back(id);
      ranks_of_node_.emplace_back();
    }
    std::vector<int>& ranks = ranks_of_node_[index(found->second)];
    node_of_rank_.push_back(found->second);
    local_of_rank_.push_back(static_cast<int>(ranks.size()));
    ranks.push_back(rank);
  }
}

ProcessGrid ProcessGrid::with_node_sizes(const std::vector<int>& sizes) {
  return ProcessGrid(node_ids_for(sizes));
}

int ProcessGrid::world_size() const { return static_cast<int>(node_of_rank_.size()); }
std::vector<int> ProcessGrid::ranks() const {
  std::vector<int> ranks(node_of_rank_.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}
int ProcessGrid::num_nodes() const { return static_cast<int>(ranks_of_node_.size()); }
int ProcessGrid::node(int rank) const { return node_of_rank_.at(index(rank)); }
int ProcessGrid::local_rank(int rank) const { return local_of_rank_.at(index(rank)); }

int ProcessGrid::local_size(int rank) const {
  return static_cast<int>(ranks_of_node(node(rank)).size());
}

const std::vector<int>& ProcessGrid::ranks_of_node(int node) const {
  return ranks_of_node_.at(index(node));
}

int ProcessGrid::leader(int node) const { return ranks_of_node(node).front(); }
bool ProcessGrid::same_node(int a, int b) const { return node(a) == node(b); }

int ProcessGrid::largest_node() const {
  return static_cast<int>(std::ranges::max(ranks_of_node_, {}, &std::vector<int>::size).size());
}

int ProcessGrid::smallest_node() const {
  return static_cast<int>(std::ranges::min(ranks_of_node_, {}, &std::vector<int>::size).size());
}

bool ProcessGrid::is_even() const {
  return std::all_of(ranks_of_node_.begin(), ranks_of_node_.end(), [this](const auto& ranks) {
    return ranks.size() == ranks_of_node_[0].size();
  });
}

std::vector<int> ProcessGrid::cross_group(int rank) const {
  const std::size_t local = index(local_rank(rank));
  std::vector<int> group;
  for (const std::vector<int>& ranks : ranks_of_node_) {
    if (local < ranks.size()) group.push_back(ranks[local]);
  }
  return group;
}

int ProcessGrid::cross_rank(int rank) const {
  // The group is ordered by node: the index is the number of earlier nodes that are large enough.
  const std::size_t local = index(local_rank(rank));
  const auto end = ranks_of_node_.begin() + node(rank);
  return static_cast<int>(std::count_if(
      ranks_of_node_.begin(), end, [local](const auto& ranks) { return local < ranks.size(); }));
}

int ProcessGrid::cross_size(int rank) const { return static_cast<int>(cross_group(rank).size()); }
const std::string& ProcessGrid::node_id(int node) const { return node_ids_.at(index(node)); }

}  // namespace kolo
