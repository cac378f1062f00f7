#include "topology/link_fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <limits>
#include <map>
#include <utility>

namespace kolo {
namespace {

constexpr std::size_t kParts = 8;

/// Returns the slope of the line of best fit through the arrivals, or 0 if there are too few.
/// Messages that are received in pairs affect it less than a line through the ends.
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

}  // namespace

double quantile(std::vector<double> values, double share) {
  const auto index = static_cast<std::size_t>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(index),
                   values.end());
  return values[index];
}

std::vector<double> part_rates(Arrivals arrivals) {
  constexpr std::size_t kLeastPart = 8, kMostSlopes = 128;
  const Arrivals later(
      std::find_if(arrivals.begin(), arrivals.end(),
                   [&](const auto& arrival) { return arrival.us >= arrivals.back().us / kParts; }),
      arrivals.end());
  const std::size_t part = std::min(std::max(kLeastPart, later.size() / kParts), later.size() - 1);
  const std::size_t step = 1 + later.size() / kMostSlopes;
  std::vector<double> rates;
  for (std::size_t first = 0; first + part < later.size(); first += step) {
    rates.push_back(slope(later.subspan(first, part + 1)));
  }
  return rates;
}

std::optional<StreamFit> fit_stream(Arrivals arrivals) {
  if (arrivals.empty() || arrivals.back().us <= 0) return std::nullopt;
  constexpr double kMostAhead = 1.5;  // relative to the overall rate, which pauses reduce
  // Relative to the rate. A pause at the start gave 1.6 and 1.9.
  constexpr double kLeastBurst = 1.5;
  const double rate = quantile(part_rates(arrivals), 0.5);
  const double rate_of_all = arrivals.back().bytes / arrivals.back().us;
  if (rate <= 0 || rate > kMostAhead * rate_of_all) {
    return StreamFit{rate_of_all, 0};
  }
  double burst = 0;
  for (const auto& arrival : arrivals) burst = std::max(burst, arrival.bytes - rate * arrival.us);
  const auto through = std::find_if(arrivals.begin(), arrivals.end(),
                                    [&](const auto& arrival) { return arrival.bytes >= burst; });
  const bool is_shaped = through->us < burst / rate / kLeastBurst;
  return StreamFit{rate, is_shaped ? burst : 0};
}

namespace {

double undisturbed(const std::vector<double>& times_us) { return quantile(times_us, 0.25); }
double median(const std::vector<double>& values) { return quantile(values, 0.5); }

std::vector<double> times_of(const std::vector<MemorySamples::Bucket>& buckets) {
  std::vector<double> times_us;
  for (const auto& bucket : buckets) times_us.push_back(bucket.us);
  return times_us;
}

/// Fewer samples cannot be compared with each other.
constexpr std::size_t kLeastSamples = 3;

std::optional<Disagreement> disagreement(std::string_view what,
                                         const std::vector<double>& times_us) {
  if (times_us.size() < kLeastSamples) return std::nullopt;
  const double shortest = std::ranges::min(times_us), middle = median(times_us);
  if (middle <= kMostSpread * shortest) return std::nullopt;
  return Disagreement{.what = what, .shortest_us = shortest, .median_us = middle};
}

/// Returns a node's rates in bytes per microsecond, by size of the working set. Sizes with too few
/// samples to show whether they agree are used only if there are no others.
std::map<double, double> rates(const std::vector<MemorySamples::Pass>& passes, double trip_us) {
  std::map<double, std::vector<double>> us_per_byte;
  for (const auto& pass : passes) {
    const double us = std::max(pass.us - 2 * trip_us, pass.us / 2);
    us_per_byte[pass.working_set_bytes].push_back(us / pass.bytes);
  }
  std::map<double, double> all, sure;
  for (const auto& [bytes, times] : us_per_byte) {
    all[bytes] = 1 / undisturbed(times);
    if (times.size() >= kLeastSamples) sure[bytes] = all[bytes];
  }
  return sure.empty() ? all : sure;
}

constexpr std::array kRates = {
    &MemoryCost::cached_bytes_per_us, &MemoryCost::bytes_per_us_8m,
    &MemoryCost::bytes_per_us_32m,    &MemoryCost::bytes_per_us,
    &MemoryCost::shared_bytes_per_us, &MemoryCost::slot_bytes_per_us,
    &MemoryCost::packed_bytes_per_us, &MemoryCost::streamed_bytes_per_us};

/// Returns the costs of the slower of two nodes.
MemoryCost slower(const MemoryCost& a, const MemoryCost& b) {
  MemoryCost result{.latency_us = std::max(a.latency_us, b.latency_us)};
  for (const auto rate : kRates) result.*rate = std::min(a.*rate, b.*rate);
  return result;
}

/// Returns the slower costs, with the larger burst: a late rank hides bursts, but enlarges none.
NetworkCost slower(const NetworkCost& a, const NetworkCost& b) {
  return {.latency_us = std::max(a.latency_us, b.latency_us),
          .bytes_per_us = std::min(a.bytes_per_us, b.bytes_per_us),
          .message_us = std::max(a.message_us, b.message_us),
          .burst_bytes = std::max(a.burst_bytes, b.burst_bytes)};
}

/// With fewer arrivals, a stream may consist only of a burst, whose rate no link sustains; or a
/// pause makes most of it slow, and the rest looks like a burst.
constexpr std::size_t kLeastArrivals = 12;

/// Returns the rate of the slowest known link; infinite if none is known.
double slowest_link(const std::vector<double>& node_rates) {
  double slowest = std::numeric_limits<double>::infinity();
  for (const double rate : node_rates) {
    if (rate > 0) slowest = std::min(slowest, rate);
  }
  return slowest;
}

/// Whether links differ by no more than repeated measurements of one link do.
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
  const auto median_of = [&](double MemoryCost::*field) {
    std::vector<double> values;
    for (const MemoryCost& cost : costs) values.push_back(cost.*field);
    return median(values);
  };
  MemoryCost result{.latency_us = median_of(&MemoryCost::latency_us)};
  for (const auto rate : kRates) result.*rate = median_of(rate);
  return result;
}

}  // namespace

std::optional<Disagreement> disagreement(const MemorySamples& samples) {
  auto found = disagreement("trips", samples.trips_us);
  if (!found) found = disagreement("sums of small buckets", times_of(samples.gathers));
  if (!found) found = disagreement("sums through slots", times_of(samples.slots));
  if (!found) found = disagreement("sums of packed parts", times_of(samples.packed));
  if (!found) found = disagreement("sums of streamed parts", times_of(samples.streamed));
  std::map<double, std::vector<double>> passes;
  for (const auto& pass : samples.own_passes) passes[pass.working_set_bytes].push_back(pass.us);
  for (const auto& [working_set, times_us] : passes) {
    if (!found) found = disagreement("passes over memory", times_us);
  }
  return found;
}

std::optional<Disagreement> disagreement(const NetworkSamples& samples) {
  const auto found = disagreement("round trips", samples.round_trips_us);
  return found ? found : disagreement("bursts of messages", samples.bursts_us);
}

bool confirms(const LinkCosts& costs, const LinkCosts& others) {
  const auto alike = [](double rate, double other) {
    return std::max(rate, other) <= kMostDifference * std::min(rate, other);
  };
  return alike(costs.network.bytes_per_us, others.network.bytes_per_us) &&
         alike(costs.memory.bytes_per_us, others.memory.bytes_per_us);
}

LinkCosts less_disturbed(const LinkCosts& costs, const LinkCosts& others) {
  LinkCosts best = costs;
  if (others.network.bytes_per_us > costs.network.bytes_per_us) {
    best.network = others.network;
    best.node_rates = others.node_rates;
  }
  if (others.memory.bytes_per_us > costs.memory.bytes_per_us) best.memory = others.memory;
  return best;
}

MemoryCost fit_memory(const MemorySamples& samples, const MemoryCost& defaults) {
  MemoryCost cost = defaults;
  if (!samples.trips_us.empty()) cost.latency_us = median(samples.trips_us);
  const std::map<double, double> node_rates = rates(samples.own_passes, cost.latency_us);
  if (node_rates.empty()) return cost;
  // Sizes that were not measured, for lack of time, get the rate of the nearest smaller size, or of
  // the smallest measured one.
  const auto at_most = [&](double mib) {
    const auto beyond = node_rates.upper_bound(mib * (1 << 20));
    return beyond == node_rates.begin() ? beyond->second : std::prev(beyond)->second;
  };
  cost.cached_bytes_per_us = at_most(1);
  cost.bytes_per_us_8m = at_most(8);
  cost.bytes_per_us_32m = at_most(32);
  cost.bytes_per_us = at_most(64);

  if (samples.ranks < 2) return cost;
  // The times of trips and of each rank's own lines are known. The rest is the time of lines that
  // move between cores, which takes at least as long as a rank's own lines.
  const double ranks = samples.ranks;
  const auto rate_of = [&](const std::vector<MemorySamples::Bucket>& buckets, double times,
                           double trips, double own_passes, double moved_passes) {
    const double bytes = buckets.front().bytes;
    const double own_us = times * ranks * own_passes * bytes / cost.cached_bytes_per_us;
    const double rest_us = undisturbed(times_of(buckets)) - trips * cost.latency_us - own_us;
    const double moved = times * moved_passes * bytes;
    return moved / std::max(rest_us, moved / cost.cached_bytes_per_us);
  };
  if (!samples.gathers.empty()) {
    const double times = samples.gathers_in_a_row;
    cost.shared_bytes_per_us = rate_of(samples.gathers, times, times + 1, 4, ranks * (ranks - 1));
  }
  if (!samples.slots.empty()) cost.slot_bytes_per_us = rate_of(samples.slots, 1, 4, 2, ranks - 1);
  // Includes all of the time, so that only these samples decide which method is faster.
  const auto handed_rate = [&](const std::vector<MemorySamples::Bucket>& buckets) {
    const double us = undisturbed(times_of(buckets));
    return (ranks - 1) * buckets.front().bytes / std::max(us - 3 * cost.latency_us, us / 2);
  };
  if (!samples.packed.empty()) cost.packed_bytes_per_us = handed_rate(samples.packed);
  if (!samples.streamed.empty()) cost.streamed_bytes_per_us = handed_rate(samples.streamed);
  return cost;
}

NetworkCost fit_network(const NetworkSamples& samples, const NetworkCost& defaults) {
  NetworkCost cost = defaults;
  if (samples.round_trips_us.empty()) return cost;
  const double round_trip = undisturbed(samples.round_trips_us);
  // Half of a round trip is sending, the wire and receiving. A burst may show a longer time per
  // message, because the kernel works on after its call returns, so the time is limited.
  double message_us = cost.message_us;
  if (!samples.bursts_us.empty() && samples.burst_messages > 1) {
    message_us =
        std::max(0.0, undisturbed(samples.bursts_us) - round_trip) / (samples.burst_messages - 1);
  }
  cost.message_us = std::min(message_us, round_trip / 4);
  cost.latency_us = round_trip / 2 - 2 * cost.message_us;
  if (samples.streams.empty()) return cost;
  const auto link = fit_stream(samples.streams.front().arrivals);
  if (!link) return cost;
  cost.bytes_per_us = link->bytes_per_us;
  for (const NetworkSamples::Stream& stream : samples.streams) {
    if (stream.arrivals.size() < kLeastArrivals) continue;
    const auto seen = fit_stream(stream.arrivals);
    if (seen) cost.burst_bytes = std::max(cost.burst_bytes, seen->burst_bytes);
  }
  return cost;
}

std::vector<double> fit_node_rates(const NetworkSamples& samples, int node, int num_nodes) {
  std::vector<double> rates(static_cast<std::size_t>(num_nodes));
  for (const NetworkSamples::Stream& stream : samples.streams) {
    if (stream.arrivals.size() < kLeastArrivals) continue;
    const auto link = fit_stream(stream.arrivals);
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
    defaults.native_network = {.latency_us = defaults.network.latency_us,
                               .bytes_per_us = defaults.network.bytes_per_us};
  }
  if (!are_alike(node_rates)) defaults.node_rates = std::move(node_rates);
  return defaults;
}

}  // namespace kolo
