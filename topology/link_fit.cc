#include "topology/link_fit.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <span>
#include <utility>

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
          .message_us = std::max(a.message_us, b.message_us),
          .burst_bytes = std::min(a.burst_bytes, b.burst_bytes)};
}

struct StreamFit {
  double bytes_per_us;
  double burst_bytes;
};

using Arrivals = std::span<const NetworkSamples::Arrival>;

/// The slope of the line that is nearest to the arrivals, or 0 if they are too few for one.
/// Messages that come two at a time move it less than they would move the line through the ends.
double slope(Arrivals arrivals) {
  const auto count = static_cast<double>(arrivals.size());
  double bytes = 0, us = 0;
  for (const auto& arrival : arrivals) {
    bytes += arrival.bytes / count;
    us += arrival.us / count;
  }
  double rise = 0, run = 0;
  for (const auto& arrival : arrivals) {
    rise += (arrival.us - us) * (arrival.bytes - bytes);
    run += (arrival.us - us) * (arrival.us - us);
  }
  return run > 0 ? rise / run : 0;
}

/// The rate at which the second half came, and what the first was ahead of it:
///
///   bytes |          .  '       the line through the second half meets time 0 at the burst, which
///         |  . - '              counts only if it came at more than twice the rate
///         |.'
///         +------------- time
std::optional<StreamFit> fit_stream(const NetworkSamples::Stream& stream) {
  const Arrivals arrivals = stream.arrivals;
  if (arrivals.empty() || arrivals.back().us <= 0) return std::nullopt;
  const NetworkSamples::Arrival last = arrivals.back();
  const auto first_with = [&](auto condition) {
    return std::find_if(arrivals.begin(), arrivals.end(), condition);
  };
  const Arrivals second_half(
      first_with([&](const auto& arrival) { return arrival.us >= last.us / 2; }), arrivals.end());
  const double rate = slope(second_half);
  if (rate <= 0) return StreamFit{last.bytes / last.us, 0};
  const double burst = last.bytes - rate * last.us;
  const auto is_through = [&](const auto& arrival) { return arrival.bytes >= burst; };
  const bool is_shaped = burst > 0 && first_with(is_through)->us < burst / rate / 2;
  return StreamFit{rate, is_shaped ? burst : 0};
}

/// The slowest link of those that are known; infinite if none is.
double slowest_link(const std::vector<double>& node_rates) {
  double slowest = std::numeric_limits<double>::infinity();
  for (const double rate : node_rates) {
    if (rate > 0) slowest = std::min(slowest, rate);
  }
  return slowest;
}

/// Whether links differ by more than measuring them twice does.
bool are_alike(const std::vector<double>& node_rates) {
  constexpr double kAlike = 1.25;
  const double fastest = *std::max_element(node_rates.begin(), node_rates.end());
  return fastest <= kAlike * slowest_link(node_rates);
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
    // Each way one message is sent and received, which is not counted twice.
    cost.latency_us = std::max(0.0, cost.latency_us - 2 * cost.message_us);
  }
  if (samples.streams.empty()) return cost;
  const auto link = fit_stream(samples.streams.front());
  if (!link) return cost;
  cost.bytes_per_us = link->bytes_per_us;
  cost.burst_bytes = link->burst_bytes;
  return cost;
}

std::vector<double> fit_node_rates(const NetworkSamples& samples, int node, int num_nodes) {
  std::vector<double> rates(static_cast<std::size_t>(num_nodes));
  for (const NetworkSamples::Stream& stream : samples.streams) {
    const auto link = fit_stream(stream);
    if (!link) continue;
    for (const int end : {node, stream.node}) {
      double& rate = rates[static_cast<std::size_t>(end)];
      rate = std::max(rate, link->bytes_per_us);
    }
  }
  return rates;
}

LinkCosts combine_costs(const std::vector<MeasuredCosts>& by_rank, const ProcessGrid& grid,
                        LinkCosts defaults) {
  std::optional<MemoryCost> memory;
  for (int node = 0; node < grid.num_nodes(); ++node) {
    const auto measured = median_of_node(by_rank, grid.ranks_of_node(node));
    if (measured) memory = memory ? slower(*memory, *measured) : *measured;
  }
  std::optional<NetworkCost> network;
  std::vector<double> node_rates(static_cast<std::size_t>(grid.num_nodes()));
  for (const MeasuredCosts& each : by_rank) {
    if (each.network) network = network ? slower(*network, *each.network) : *each.network;
    for (std::size_t node = 0; node < each.node_rates.size(); ++node) {
      node_rates[node] = std::max(node_rates[node], each.node_rates[node]);
    }
  }
  if (memory) defaults.memory = *memory;
  if (network) {
    const double slowest = slowest_link(node_rates);
    if (std::isfinite(slowest)) network->bytes_per_us = slowest;
    defaults.network = *network;
    defaults.native_network = {.latency_us = network->latency_us,
                               .bytes_per_us = network->bytes_per_us};
  }
  if (!are_alike(node_rates)) defaults.node_rates = std::move(node_rates);
  return defaults;
}

}  // namespace kolo
