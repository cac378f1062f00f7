#include <algorithm>
#include <bit>
#include <iomanip>
#include <limits>
#include <sstream>
#include <stdexcept>

#include "topology/cost_model.h"

// How a device bucket is priced. The device's own library
// pipelines inside a call, so a call costs one latency and its bytes. A unit of a hierarchical
// schedule takes its stages one after the other; each stage has one unit at a time, and the fixed
// order of launches lets two units be under way:
//
//   collectives   RS0 RS1         AG0 RS2     AG1
//   down, network, up  ---0---  ---1---    ---2---
//
//   units follow each other at max(slowest stage, half of all stages)

namespace kolo {
namespace {

constexpr std::string_view kNative = "native";
constexpr std::string_view kHierarchicalPrefix = "hierarchical:native,";

double transfer_us(const LinkCost& link, double bytes) {
  return link.latency_us + bytes / link.bytes_per_us;
}

double largest_node(const ProcessGrid& grid) {
  std::size_t largest = 0;
  for (int node = 0; node < grid.num_nodes(); ++node) {
    largest = std::max(largest, grid.ranks_of_node(node).size());
  }
  return static_cast<double>(largest);
}

double smallest_node(const ProcessGrid& grid) {
  std::size_t smallest = grid.ranks_of_node(0).size();
  for (int node = 1; node < grid.num_nodes(); ++node) {
    smallest = std::min(smallest, grid.ranks_of_node(node).size());
  }
  return static_cast<double>(smallest);
}

std::string time_text(double us) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(1) << (us < 1000 ? us : us / 1000)
       << (us < 1000 ? " us" : " ms");
  return text.str();
}

}  // namespace

double CostModel::native_us(std::size_t bytes) const {
  const double n = grid_.world_size();
  if (grid_.world_size() == 1) return 0;
  const double moved = 2 * (n - 1) / n * static_cast<double>(bytes);
  const double inside = largest_node(grid_) > 1 ? moved / costs_.device.bytes_per_us : 0;
  if (grid_.num_nodes() == 1) return costs_.device.latency_us + inside;
  // Two nodes exchange halves as two trees; more of them are cheapest to reach by rings through all
  // ranks, which cross each node's link with all but their own part.
  const double crossed = grid_.num_nodes() == 2 ? static_cast<double>(bytes) : moved;
  const auto depth =
      static_cast<double>(std::bit_width(static_cast<unsigned>(grid_.num_nodes() - 1)));
  return costs_.device.latency_us + 2 * depth * costs_.native_network.latency_us +
         std::max(inside, crossed / costs_.native_network.bytes_per_us);
}

double CostModel::native_hierarchical_us(std::size_t bytes, const std::string& cross,
                                         std::size_t unit_bytes) const {
  // As between hosts, each node's link carries all parts: one rank per node with all the bytes.
  // What processors do meanwhile is left out.
  const ProcessGrid leaders = ProcessGrid::with_node_sizes(
      std::vector<int>(static_cast<std::size_t>(grid_.num_nodes()), 1));
  LinkCosts links = costs_;
  links.network.message_us = links.step_us = 0;
  links.memory.bytes_per_us = links.memory.cached_bytes_per_us = links.memory.shared_bytes_per_us =
      std::numeric_limits<double>::infinity();

  const std::size_t limit = std::max<std::size_t>(1, unit_bytes);
  const auto units = static_cast<double>(std::max<std::size_t>(1, (bytes + limit - 1) / limit));
  const double unit = static_cast<double>(bytes) / units;
  const double local = largest_node(grid_);
  double half = 0;  // of the collectives
  if (local > 1) half = transfer_us(costs_.device, (local - 1) / local * unit);
  double copy = 0;  // down, and again up
  if (grid_.num_nodes() > 1) {
    const double nodes = grid_.num_nodes();
    copy = transfer_us(costs_.staging, 2 * (nodes - 1) / nodes * unit / smallest_node(grid_));
  }
  const Passage passage = flat_passage(cross, HostPassages(leaders, links, unit), unit);
  const double exchange = grid_.num_nodes() > 1 ? passage.alone_us() : 0;
  const double all = 2 * half + 2 * copy + exchange;
  const double slowest = std::max({2 * half, copy, exchange});
  return all + (units - 1) * std::max(slowest, all / 2);
}

std::vector<std::string> CostModel::device_algorithms(const DeviceLimits& limits) {
  std::vector<std::string> names;
  if (limits.native_spans_nodes) names.emplace_back(kNative);
  for (const char* cross : {"direct", "ring", "halving_doubling", "tree"}) {
    if (limits.reproducible && std::string_view(cross) != "direct") continue;
    names.push_back(std::string(kHierarchicalPrefix) + cross);
  }
  return names;
}

double CostModel::device_us(const std::string& algorithm, std::size_t bytes,
                            std::size_t unit_bytes) const {
  if (algorithm == kNative) return native_us(bytes);
  if (algorithm.starts_with(kHierarchicalPrefix)) {
    return native_hierarchical_us(bytes, algorithm.substr(kHierarchicalPrefix.size()), unit_bytes);
  }
  throw std::invalid_argument("unknown device algorithm '" + algorithm + "'");
}

std::string CostModel::choose_device(std::size_t bytes, const DeviceLimits& limits) const {
  return best_device(bytes, limits, "");
}

std::string CostModel::best_device(std::size_t bytes, const DeviceLimits& limits,
                                   std::string_view except) const {
  std::string chosen;
  double best = std::numeric_limits<double>::infinity();
  for (const std::string& name : device_algorithms(limits)) {
    if (name == except) continue;
    const double predicted = device_us(name, bytes, limits.unit_bytes);
    if (predicted < best) {
      best = predicted;
      chosen = name;
    }
  }
  return chosen;
}

std::string CostModel::explain_device(const std::string& algorithm, std::size_t bytes,
                                      const DeviceLimits& limits) const {
  const auto predicted = [&](const std::string& name) {
    return time_text(device_us(name, bytes, limits.unit_bytes));
  };
  const bool has_prediction = algorithm == kNative || algorithm.starts_with(kHierarchicalPrefix);
  std::string text = algorithm + ": ";
  text += has_prediction ? predicted(algorithm) + " predicted" : "as asked for, not predicted";
  const std::string other = best_device(bytes, limits, algorithm);
  if (!other.empty()) text += "; " + other + " " + predicted(other);
  return text;
}

}  // namespace kolo
