#include "topology/link_fit.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "topology/host_passages.h"

namespace kolo {
namespace {

double quantile(std::vector<double> values, double share) {
  const auto index = static_cast<std::size_t>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(index),
                   values.end());
  return values[index];
}

double undisturbed(const std::vector<double>& times_us) { return quantile(times_us, 0.25); }
double median(const std::vector<double>& values) { return quantile(values, 0.5); }

/// Bytes per microsecond of one rank, by size of the working set.
std::map<double, double> rates(const std::vector<MemorySamples::Pass>& passes) {
  std::map<double, std::vector<double>> us_per_byte;
  for (const auto& pass : passes) {
    us_per_byte[pass.working_set_bytes].push_back(pass.us / pass.bytes);
  }
  std::map<double, double> result;
  for (const auto& [bytes, times] : us_per_byte) result[bytes] = 1 / undisturbed(times);
  return result;
}

/// How far off the costs are, as the square of a ratio's logarithm.
double misfit(const MemoryCost& cost, const std::map<double, double>& node_rates) {
  double sum = 0;
  for (const auto& [bytes, rate] : node_rates) {
    const double off = std::log(NodeMemory(cost, bytes).own_us(1) * rate);
    sum += off * off;
  }
  return sum;
}

/// The size of cache with which `cost` explains the rates best.
double fit_cache(MemoryCost cost, const std::map<double, double>& node_rates) {
  constexpr int kStepsPerDoubling = 4;
  double best = std::numeric_limits<double>::infinity();
  double chosen = cost.cache_bytes;
  const double smallest = node_rates.begin()->first, largest = node_rates.rbegin()->first;
  for (int step = 0;; ++step) {
    cost.cache_bytes = smallest * std::exp2(static_cast<double>(step) / kStepsPerDoubling);
    if (cost.cache_bytes > largest / 2) return chosen;
    const double off = misfit(cost, node_rates);
    if (off < best) {
      best = off;
      chosen = cost.cache_bytes;
    }
  }
}

/// The slower of two nodes.
MemoryCost slower(const MemoryCost& a, const MemoryCost& b) {
  return {.latency_us = std::max(a.latency_us, b.latency_us),
          .bytes_per_us = std::min(a.bytes_per_us, b.bytes_per_us),
          .cached_bytes_per_us = std::min(a.cached_bytes_per_us, b.cached_bytes_per_us),
          .shared_bytes_per_us = std::min(a.shared_bytes_per_us, b.shared_bytes_per_us),
          .cache_bytes = std::min(a.cache_bytes, b.cache_bytes)};
}

NetworkCost slower(const NetworkCost& a, const NetworkCost& b) {
  return {.latency_us = std::max(a.latency_us, b.latency_us),
          .bytes_per_us = std::min(a.bytes_per_us, b.bytes_per_us),
          .message_us = std::max(a.message_us, b.message_us)};
}

std::optional<MemoryCost> median_of_node(const std::vector<MeasuredCosts>& by_rank,
                                         const std::vector<int>& ranks) {
  std::vector<MemoryCost> costs;
  for (const int rank : ranks) {
    const auto& measured = by_rank[static_cast<std::size_t>(rank)].memory;
    if (measured) costs.push_back(*measured);
  }
  if (costs.empty()) return std::nullopt;
  MemoryCost result;
  for (double MemoryCost::*field :
       {&MemoryCost::latency_us, &MemoryCost::bytes_per_us, &MemoryCost::cached_bytes_per_us,
        &MemoryCost::shared_bytes_per_us, &MemoryCost::cache_bytes}) {
    std::vector<double> values;
    for (const MemoryCost& cost : costs) values.push_back(cost.*field);
    result.*field = median(values);
  }
  return result;
}

}  // namespace

MemoryCost fit_memory(const MemorySamples& samples, const MemoryCost& defaults) {
  MemoryCost cost = defaults;
  if (!samples.trips_us.empty()) cost.latency_us = undisturbed(samples.trips_us);
  std::map<double, double> node_rates = rates(samples.own_passes);
  if (node_rates.empty()) return cost;
  for (auto& [bytes, rate] : node_rates) rate *= samples.at_once;
  cost.cached_bytes_per_us = node_rates.begin()->second;
  // The fastest rate is that of the cache, wherever noise has put it.
  for (const auto& [bytes, rate] : node_rates) {
    cost.cached_bytes_per_us = std::max(cost.cached_bytes_per_us, rate);
  }
  cost.bytes_per_us = node_rates.rbegin()->second;
  cost.cache_bytes = fit_cache(cost, node_rates);

  if (samples.gathers.empty() || samples.ranks < 2) return cost;
  std::vector<double> times_us;
  for (const auto& gather : samples.gathers) times_us.push_back(gather.us);
  // The trip and what each rank moves in its own lines take what they take; the rest is reading
  // the others' copies, which is never faster than reading one's own.
  const double ranks = samples.ranks, bytes = samples.gathers.front().bytes;
  const double own_us = ranks * 4 * bytes / cost.cached_bytes_per_us;
  const double shared_us = undisturbed(times_us) - cost.latency_us - own_us;
  const double shared = ranks * (ranks - 1) * bytes;
  cost.shared_bytes_per_us = shared / std::max(shared_us, shared / cost.cached_bytes_per_us);
  return cost;
}

NetworkCost fit_network(const NetworkSamples& samples, const NetworkCost& defaults) {
  NetworkCost cost = defaults;
  if (samples.round_trips_us.empty()) return cost;
  const double round_trip = undisturbed(samples.round_trips_us);
  cost.latency_us = round_trip / 2;
  if (!samples.bursts_us.empty() && samples.burst_messages > 1) {
    cost.message_us =
        std::max(0.0, undisturbed(samples.bursts_us) - round_trip) / (samples.burst_messages - 1);
  }
  std::map<double, std::vector<double>> times;
  for (const auto& exchange : samples.exchanges) times[exchange.bytes].push_back(exchange.us);
  if (times.empty()) return cost;
  const double most = times.rbegin()->first;
  const double most_us = undisturbed(times.rbegin()->second);
  // Latency drops out of the difference of two sizes.
  const double more = most - times.begin()->first;
  const double more_us = most_us - undisturbed(times.begin()->second);
  const double whole = most / most_us;
  cost.bytes_per_us = more > 0 && more_us > 0 ? std::max(whole, more / more_us) : whole;
  return cost;
}

LinkCosts combine_costs(const std::vector<MeasuredCosts>& by_rank, const ProcessGrid& grid,
                        LinkCosts defaults) {
  std::optional<MemoryCost> memory;
  for (int node = 0; node < grid.num_nodes(); ++node) {
    const auto measured = median_of_node(by_rank, grid.ranks_of_node(node));
    if (measured) memory = memory ? slower(*memory, *measured) : *measured;
  }
  std::optional<NetworkCost> network;
  for (const MeasuredCosts& each : by_rank) {
    if (each.network) network = network ? slower(*network, *each.network) : *each.network;
  }
  if (memory) defaults.memory = *memory;
  if (network) {
    defaults.network = *network;
    defaults.native_network = {.latency_us = network->latency_us,
                               .bytes_per_us = network->bytes_per_us};
  }
  return defaults;
}

}  // namespace kolo
