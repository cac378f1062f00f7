#include "runtime/calibration/calibration.h"

#include <chrono>
#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "comm/base/log.h"
#include "runtime/calibration/calibration_file.h"
#include "runtime/calibration/probe.h"
#include "topology/link_fit.h"

namespace kolo {
namespace {

constexpr std::string_view kMemoryKeys = "memory_";
constexpr std::string_view kNetworkKeys = "network_";
constexpr std::string_view kNodeRates = "node_rates";
/// Between the costs that a rank measured and the reason why it has no others.
constexpr char kDoubtFollows = '\n';

/// The time for measuring, out of 200 ms in all: the rest is for ranks that begin late and for the
/// exchange of results.
constexpr std::chrono::milliseconds kMeasureWithin{140};
/// The part of it for the inside of nodes.
constexpr std::chrono::milliseconds kNodeWithin{55};

/// `text` of rank 0.
std::string from_rank_0(Rendezvous& rendezvous, const std::string& text) {
  return rendezvous.all_gather(rendezvous.rank() == 0 ? text : std::string()).front();
}

void append(std::string& text, const std::string& more) {
  text += (text.empty() || more.empty() ? "" : ",") + more;
}

std::string describe(const Disagreement& doubt) {
  return fmt::format("{}: the shortest took {:.3g} us, half of them over {:.3g}", doubt.what,
                     doubt.shortest_us, doubt.median_us);
}

/// The costs that one rank measured, in the keys of `LinkCosts`, and why others are missing.
struct RankCosts {
  std::string costs = {};
  std::string doubt = {};  ///< Empty: none.

  void doubts(const Disagreement& found) {
    if (doubt.empty()) doubt = describe(found);
  }
};

RankCosts measure_rank(Transport& transport, const ProcessGrid& grid, const ProbeLimits& limits) {
  const SteadyClock clock;
  const TimePoint begin = clock.now();
  RankCosts result;
  LinkCosts fitted;
  const MemorySamples memory =
      probe_node(transport, grid, limits, {.clock = clock, .end = begin + kNodeWithin});
  if (const auto doubt = disagreement(memory)) {
    result.doubts(*doubt);
  } else if (!memory.own_passes.empty()) {
    fitted.memory = fit_memory(memory);
    append(result.costs, to_string(fitted, kMemoryKeys));
  }
  const NetworkSamples network =
      probe_network(transport, grid, limits, {.clock = clock, .end = begin + kMeasureWithin});
  if (const auto doubt = disagreement(network)) {
    result.doubts(*doubt);
    return result;
  }
  if (!network.round_trips_us.empty()) {
    fitted.network = fit_network(network);
    append(result.costs, to_string(fitted, kNetworkKeys));
  }
  if (!network.streams.empty()) {
    fitted.node_rates = fit_node_rates(network, grid.node(transport.rank()), grid.num_nodes());
    append(result.costs, to_string(fitted, kNodeRates));
  }
  return result;
}

MeasuredCosts parse_measured(const std::string& text) {
  const LinkCosts costs = parse_link_costs(text);
  MeasuredCosts measured;
  if (text.find(kMemoryKeys) != std::string::npos) measured.memory = costs.memory;
  if (text.find(kNetworkKeys) != std::string::npos) measured.network = costs.network;
  measured.node_rates = costs.node_rates;
  return measured;
}

/// The costs that all ranks measured together, the same on all of them.
struct JobCosts {
  LinkCosts costs;
  std::string doubt = {};  ///< The doubt of the first rank that has one; empty: none.
};

JobCosts measure(Rendezvous& rendezvous, Transport& transport, const ProcessGrid& grid,
                 const ProbeLimits& limits, double rank_cores) {
  const RankCosts mine = measure_rank(transport, grid, limits);
  JobCosts result;
  std::vector<MeasuredCosts> measured;
  std::size_t doubting = 0;
  for (const std::string& text : rendezvous.all_gather(mine.costs + kDoubtFollows + mine.doubt)) {
    const std::size_t end = text.find(kDoubtFollows);
    const std::string doubt = text.substr(end + 1);
    if (!doubt.empty() && ++doubting == 1) {
      result.doubt = fmt::format("rank {}, {}", measured.size(), doubt);
    }
    measured.push_back(parse_measured(text.substr(0, end)));
  }
  if (doubting > 1) {
    result.doubt += fmt::format("; {} of {} ranks alike", doubting, measured.size());
  }
  LinkCosts defaults;
  defaults.rank_cores = rank_cores;
  // Its costs are those of all ranks.
  if (rendezvous.rank() == 0) defaults.step_us = probe_step_us(transport, SteadyClock());
  result.costs = combine_costs(measured, grid, defaults);
  return result;
}

}  // namespace

Calibration calibrate(Rendezvous& rendezvous, Transport& transport, const ProcessGrid& grid,
                      std::span<const RankPlace> places, const TransportLimits& limits,
                      const Options& options) {
  Calibration result{.costs = parse_link_costs(options.link_costs), .source = "defaults"};
  if (options.calibrate == "off" || grid.world_size() == 1) return result;

  const bool decides = rendezvous.rank() == 0;
  // Inside a node no choice changes the bits of a sum, so each run may measure anew.
  const bool remembers = options.calibration_file != "auto" || grid.num_nodes() > 1;
  CalibrationFile file(decides && remembers ? calibration_path(options.calibration_file) : "",
                       job_shape(places, grid));
  const auto now = std::chrono::system_clock::now();
  std::string costs = from_rank_0(rendezvous, file.link_costs(now).value_or(""));
  std::string source = "read from " + file.path();
  if (costs.empty()) {
    const double own_cores = rank_cores(places);
    const bool shares_cores =
        own_cores < 1 ||
        granted_cores() < static_cast<std::size_t>(grid.local_size(rendezvous.rank()));
    const SteadyClock clock;
    const Stopwatch watch(clock);
    const JobCosts measured = measure(rendezvous, transport, grid,
                                      {.transport = limits,
                                       .shares_cores = shares_cores,
                                       .connect_timeout = options.connect_timeout},
                                      own_cores);
    costs = from_rank_0(rendezvous, to_string(measured.costs));
    source = fmt::format("measured in {:.0f} ms", watch.us() / 1e3);
    if (measured.doubt.empty()) {
      file.remember_link_costs(costs, now);
    } else {
      const std::string why = fmt::format(
          "samples disagree ({}), so the costs that they give are ignored", measured.doubt);
      source += "; " + why;
      // Ranks that outnumber the cores of their machine keep each other busy.
      if (decides)
        (shares_cores ? log::info : log::warn)("measuring links on a busy machine: " + why);
    }
  }
  result.source = from_rank_0(rendezvous, source);
  result.costs = parse_link_costs(options.link_costs, parse_link_costs(costs));
  return result;
}

}  // namespace kolo
