#include "runtime/calibration/link_meter.h"

#include <algorithm>
#include <cstddef>
#include <sstream>
#include <string_view>

#include <fmt/format.h>

#include "runtime/calibration/link_look.h"
#include "topology/link_fit.h"

namespace kolo {
namespace {

constexpr std::string_view kMemoryKeys = "memory_";
constexpr std::string_view kNetworkKeys = "network_";
constexpr std::string_view kNodeRates = "node_rates";

/// What measuring may take of 200 ms in all: the rest is for ranks that begin late, and telling
/// each other.
constexpr std::chrono::milliseconds kMeasureWithin{140};
/// Of it, inside nodes.
constexpr std::chrono::milliseconds kNodeWithin{55};

MeasuredCosts parse_measured(const std::string& text) {
  const LinkCosts costs = parse_link_costs(text);
  MeasuredCosts measured;
  if (text.find(kMemoryKeys) != std::string::npos) measured.memory = costs.memory;
  if (text.find(kNetworkKeys) != std::string::npos) measured.network = costs.network;
  measured.node_rates = costs.node_rates;
  return measured;
}

std::string join(const std::string& a, const std::string& b) {
  return a.empty() || b.empty() ? a + b : a + "," + b;
}

std::string to_text(const LinkLook& look) {
  return fmt::format("{} {} {} {}", look.node, look.trip_us, look.least_rate, look.most_rate);
}

LinkLook parse_look(const std::string& text) {
  LinkLook look;
  std::istringstream(text) >> look.node >> look.trip_us >> look.least_rate >> look.most_rate;
  return look;
}

}  // namespace

LinkCosts LinkMeter::measure() {
  const TimePoint begin = clock_.now();
  const std::string memory = memory_costs(begin + kNodeWithin);
  return combine(join(memory, network_costs(begin + kMeasureWithin)));
}

std::optional<LinkChange> LinkMeter::look(const LinkCosts& remembered) {
  std::vector<LinkLook> links = look_once(remembered);
  if (!find_change(remembered, links)) return std::nullopt;
  std::ranges::transform(links, look_once(remembered), links.begin(), merge);
  return find_change(remembered, links);
}

/// By link, the same ones on all ranks and in all looks.
std::vector<LinkLook> LinkMeter::look_once(const LinkCosts& remembered) {
  const auto mine = look_at_link(transport_, grid_, limits_, clock_, remembered);
  std::vector<LinkLook> links;
  for (const std::string& text : rendezvous_.all_gather(mine ? to_text(*mine) : "")) {
    if (!text.empty()) links.push_back(parse_look(text));
  }
  return links;
}

/// What this rank measures inside its node, in the keys of link costs.
std::string LinkMeter::memory_costs(TimePoint end) {
  const MemorySamples samples =
      probe_node(transport_, grid_, limits_, {.clock = clock_, .end = end});
  if (samples.own_passes.empty()) return {};
  LinkCosts costs;
  costs.memory = fit_memory(samples);
  return to_string(costs, kMemoryKeys);
}

/// The same between nodes.
std::string LinkMeter::network_costs(TimePoint end) {
  const NetworkSamples samples =
      probe_network(transport_, grid_, limits_, {.clock = clock_, .end = end});
  LinkCosts costs;
  std::string network, rates;
  if (!samples.round_trips_us.empty()) {
    costs.network = fit_network(samples);
    network = to_string(costs, kNetworkKeys);
  }
  if (!samples.streams.empty()) {
    costs.node_rates = fit_node_rates(samples, grid_.node(transport_.rank()), grid_.num_nodes());
    rates = to_string(costs, kNodeRates);
  }
  return join(network, rates);
}

/// What follows from what all ranks found.
LinkCosts LinkMeter::combine(const std::string& mine) {
  std::vector<MeasuredCosts> measured;
  for (const std::string& text : rendezvous_.all_gather(mine)) {
    measured.push_back(parse_measured(text));
  }
  LinkCosts defaults;
  defaults.rank_cores = rank_cores_;
  return combine_costs(measured, grid_, defaults);
}

}  // namespace kolo
