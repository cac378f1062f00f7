#include "topology/link_change.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "topology/stream_fit.h"

namespace kolo {
namespace {

/// Of a small message, sent, under way and received.
double trip_us(const NetworkCost& network) { return network.latency_us + 2 * network.message_us; }

/// Without what came before `burst_bytes` had, unless too little would be left.
Arrivals past_burst(Arrivals arrivals, double burst_bytes) {
  constexpr std::size_t kLeast = 8;
  while (arrivals.size() > kLeast && arrivals.front().bytes < burst_bytes) {
    arrivals = arrivals.subspan(1);
  }
  return arrivals;
}

}  // namespace

std::optional<LinkLook> look_at(const NetworkSamples& samples, int node, double burst_bytes) {
  if (samples.round_trips_us.empty() || samples.streams.empty()) return std::nullopt;
  const Arrivals arrivals = samples.streams.front().arrivals;
  const NetworkSamples::Arrival last = arrivals.back();
  const double least = std::max(last.bytes - burst_bytes, 0.0) / std::max(last.us, 1.0);
  const std::vector<double> parts = part_rates(past_burst(arrivals, burst_bytes));
  return LinkLook{.node = node,
                  .trip_us = std::ranges::min(samples.round_trips_us) / 2,
                  .least_rate = least,
                  .most_rate = std::max(least, std::ranges::max(parts))};
}

LinkLook merge(const LinkLook& a, const LinkLook& b) {
  return {.node = a.node,
          .trip_us = std::min(a.trip_us, b.trip_us),
          .least_rate = std::min(a.least_rate, b.least_rate),
          .most_rate = std::max(a.most_rate, b.most_rate)};
}

std::optional<LinkChange> find_change(const LinkCosts& before, std::span<const LinkLook> links) {
  double longest_us = 0;
  for (const LinkLook& link : links) {
    longest_us = std::max(longest_us, link.trip_us);
    // Both ends of a stream have the rate of the slower one.
    const double rate = std::min(before.node_rate(link.node), before.node_rate(link.node + 1));
    const bool is_faster = link.least_rate > kRateChange * rate;
    if (!is_faster && link.most_rate * kRateChange >= rate) continue;
    return LinkChange{.what = LinkChange::What::kRate,
                      .node = link.node,
                      .before = rate,
                      .now = is_faster ? link.least_rate : link.most_rate};
  }
  const double trip = trip_us(before.network);
  if (!links.empty() && longest_us * kTripChange < trip) {
    return LinkChange{.what = LinkChange::What::kTrip, .before = trip, .now = longest_us};
  }
  return std::nullopt;
}

}  // namespace kolo
