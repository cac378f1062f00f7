#include "runtime/calibration/calibration.h"

#include <algorithm>
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
/// The key under which rank 0 posts the cost of a step, which it measures for all ranks.
constexpr std::string_view kStepKey = "step_us";
constexpr std::string_view kReadKey = "private_read_us";
constexpr std::string_view kPageKey = "private_page_us";

// Keys in the exchange.
constexpr const char* kRemembered = "remembered costs";
constexpr const char* kTunedChoices = "tuned choices";
constexpr const char* kFile = "calibration file";
constexpr const char* kMeasured = "measured costs";
constexpr const char* kStep = "times of a step, a read and a page";
constexpr const char* kTime = "time of measuring";

/// Separates a rank's measured costs from the reason why some costs are missing.
constexpr char kDoubtFollows = '\n';

/// Time for measuring. The rest of the 200 ms in all is for ranks that begin late and for the
/// exchange of results.
constexpr std::chrono::milliseconds kMeasureWithin{140};
/// The part of `kMeasureWithin` for measuring inside nodes.
constexpr std::chrono::milliseconds kNodeWithin{55};
/// Least time for measuring between nodes, even if measuring inside nodes took longer: streams that
/// are too short show bursts and pauses instead of the link's rate.
constexpr std::chrono::milliseconds kNetworkAtLeast{60};

void append(std::string& text, const std::string& more) {
  text += (text.empty() || more.empty() ? "" : ",") + more;
}

std::string describe(const Disagreement& doubt) {
  return fmt::format("{}: the shortest took {:.3g} us, half of them over {:.3g}", doubt.what,
                     doubt.shortest_us, doubt.median_us);
}

/// The costs that one rank measured, in the keys of `LinkCosts`, and why some costs are missing.
struct RankCosts {
  std::string costs = {};
  std::string doubt = {};  ///< Empty if all are valid.

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
  const TimePoint end = std::max(begin + kMeasureWithin, clock.now() + kNetworkAtLeast);
  const NetworkSamples network =
      probe_network(transport, grid, limits, {.clock = clock, .end = end});
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

/// The costs of the job, from the measurements of all ranks; equal on all ranks.
struct JobCosts {
  LinkCosts costs;
  std::string doubt = {};  ///< The doubt of the first rank with a doubt.
};

JobCosts combine(const std::vector<std::string>& texts, const ProcessGrid& grid,
                 const LinkCosts& defaults) {
  JobCosts result;
  std::vector<MeasuredCosts> measured;
  std::size_t doubting = 0;
  for (const std::string& text : texts) {
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
  result.costs = combine_costs(measured, grid, defaults);
  return result;
}

}  // namespace

Calibrator::Calibrator(int rank, const ProcessGrid& grid, std::span<const RankPlace> places,
                       const Options& options)
    : rank_(rank), grid_(grid), places_(places), options_(options) {
  if (!measures()) return;
  known_.rank_cores = rank_cores(places_);
  file_ = std::make_unique<CalibrationFile>(
      rank == 0 ? calibration_path(options.calibration_file) : "", job_shape(places, grid));
}

Calibrator::~Calibrator() = default;

bool Calibrator::measures() const {
  return options_.calibrate != "off" && !options_.reproducible && grid_.world_size() > 1;
}

Calibration Calibrator::defaults() const {
  return {.costs = parse_link_costs(options_.link_costs), .source = "defaults"};
}

void Calibrator::post(BatchedExchange& exchange) {
  if (!measures()) return;
  const auto now = std::chrono::system_clock::now();
  const auto costs = file_->link_costs(now);  // Also logs what is wrong with the file.
  if (costs && remembers_) {
    exchange.post(kRemembered, *costs);
    exchange.post(kFile, file_->path());
  }
  if (options_.link_costs.empty()) exchange.post(kTunedChoices, file_->tuning(now));
}

bool Calibrator::shares_cores() const {
  return known_.rank_cores < 1 ||
         granted_cores() < static_cast<std::size_t>(grid_.local_size(rank_));
}

bool Calibrator::measure(BatchedExchange& exchange, Transport& transport,
                         const TransportLimits& limits) {
  if (!measures() || !exchange.text_of_rank_0(kRemembered).empty()) return false;
  const SteadyClock clock;
  const Stopwatch watch(clock);
  const RankCosts mine = measure_rank(transport, grid_,
                                      {.transport = limits,
                                       .shares_cores = shares_cores(),
                                       .connect_timeout = options_.connect_timeout});
  exchange.post(kMeasured, mine.costs + kDoubtFollows + mine.doubt);
  if (rank_ == 0) {
    // Rank 0 posts the costs of a step for all ranks, and the time that measuring took.
    LinkCosts steps = known_;
    steps.step_us = probe_step_us(transport, clock);
    if (const auto reads = probe_private_reads(clock)) {
      steps.private_read_us = reads->call_us;
      steps.private_page_us = reads->page_us;
    }
    exchange.post(kStep, fmt::format("{},{},{}", to_string(steps, kStepKey),
                                     to_string(steps, kReadKey), to_string(steps, kPageKey)));
    exchange.post(kTime, fmt::format("{:.0f}", watch.us() / 1e3));
  }
  return true;
}

Calibration Calibrator::finish(BatchedExchange& exchange) {
  if (!measures()) return defaults();
  Calibration result = known_or_measured(exchange);
  result.tuning = parse_tuning(exchange.text_of_rank_0(kTunedChoices));
  result.shape = file_->shape();
  return result;
}

Calibration Calibrator::known_or_measured(BatchedExchange& exchange) {
  const std::string remembered = exchange.text_of_rank_0(kRemembered);
  if (!remembered.empty()) {
    return {.costs = parse_link_costs(options_.link_costs, parse_link_costs(remembered)),
            .source = "read from " + exchange.text_of_rank_0(kFile)};
  }
  const LinkCosts steps = parse_link_costs(exchange.text_of_rank_0(kStep), known_);
  const JobCosts measured = combine(exchange.texts(kMeasured), grid_, steps);
  // Converts to text and back, so that a later job that reads the text has equal costs.
  const std::string costs = to_string(measured.costs);
  std::string source = fmt::format("measured in {} ms", exchange.text_of_rank_0(kTime));
  if (measured.doubt.empty()) {
    if (remembers_) file_->remember_link_costs(costs, std::chrono::system_clock::now());
  } else {
    const std::string why = fmt::format(
        "samples disagree ({}), so the costs that they give are ignored", measured.doubt);
    source += "; " + why;
    // If ranks outnumber the cores of their machine, they disturb each other's measurements.
    if (rank_ == 0) {
      (shares_cores() ? log::info : log::warn)("measuring links on a busy machine: " + why);
    }
  }
  return {.costs = parse_link_costs(options_.link_costs, parse_link_costs(costs)),
          .is_doubtful = !measured.doubt.empty(),
          .source = source};
}

}  // namespace kolo
