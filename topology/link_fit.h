#pragma once

#include <cstddef>
#include <numbers>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "topology/link_costs.h"
#include "topology/process_grid.h"

namespace kolo {

/// Samples of one rank inside its node, measured by all ranks of the node at the same time.
struct MemorySamples {
  struct Pass {
    double working_set_bytes = 0;  ///< Touched again and again, all ranks of the node together.
    double bytes = 0;              ///< Read plus written, by all of them.
    double us = 0;                 ///< Two trips included.
  };
  /// The work of an algorithm on a bucket of `bytes`.
  struct Bucket {
    double bytes = 0;
    double us = 0;
  };
  std::vector<double> trips_us = {};  ///< From a signal to all peers until all of theirs are here.
  std::vector<Pass> own_passes = {};  ///< Over lines that each rank wrote itself.
  /// All of one size: what `flat` does so many times in a row, a copy, one trip, and a sum of all
  /// ranks' copies; and a trip at the end.
  std::vector<Bucket> gathers = {};
  int gathers_in_a_row = 1;
  /// All of one size: what `direct` does with the caller's tensors: copies to slots, one trip, a
  /// sum of the own part in tensor and slots to all of them, one trip, copies from slots; and a
  /// trip before and after.
  std::vector<Bucket> slots = {};
  /// All of one size: what a reduce-scatter does with them: parts for others to slots, one trip, a
  /// sum of the own part in tensor and slots; and a trip before and after. Written through the
  /// cache, and past it.
  std::vector<Bucket> packed = {}, streamed = {};
  int ranks = 1;  ///< Ranks of the node.
};

/// Samples of one rank with ranks of other nodes.
struct NetworkSamples {
  /// The number of bytes that had arrived at a time after a stream began.
  struct Arrival {
    double bytes = 0;
    double us = 0;
  };
  /// Bytes in both directions without a pause.
  struct Stream {
    int node = 0;  ///< The node at the other end.
    std::vector<Arrival> arrivals = {};
  };
  std::vector<double> round_trips_us = {};  ///< A small message and its answer.
  std::vector<double> bursts_us = {};       ///< `burst_messages` small messages, one answer.
  int burst_messages = 1;
  std::vector<Stream> streams = {};
};

/// The costs that one rank has measured; empty where there was nothing to measure.
struct MeasuredCosts {
  std::optional<MemoryCost> memory = {};
  std::optional<NetworkCost> network = {};
  std::vector<double> node_rates = {};  ///< As in `LinkCosts`, of the links measured here.
};

/// Samples of one kind disagree if half of them took more than so many times the shortest one: then
/// something else was busy on the same cores most of the time. A documented default: a cost that is
/// off by this factor makes no choice worse than twice as slow, as
/// `tests/benchmarks/constants_test.cc` shows.
inline constexpr double kMostSpread = 4;

struct Disagreement {
  std::string_view what;  ///< The kind of samples.
  double shortest_us = 0;
  double median_us = 0;
};

/// The first kind whose samples disagree. A cost that follows from them is not to be believed.
/// Threads: pure; any.
std::optional<Disagreement> disagreement(const MemorySamples& samples);
std::optional<Disagreement> disagreement(const NetworkSamples& samples);

/// Rates of two measurements of one link that differ by more were not measured on an idle machine
/// both times. Another program that uses the link or the cores as much leaves half: this is the
/// middle between all and half of it.
inline constexpr double kMostDifference = std::numbers::sqrt2;

/// Whether two jobs of one shape measured the same rates. What one of them measured under a load
/// that has gone has other samples, which agree with each other: only a second measurement tells.
/// Threads: pure; any.
bool confirms(const LinkCosts& costs, const LinkCosts& others);
/// Of each kind of link the costs of the measurement with the higher rate, which others disturbed
/// less. Threads: pure; any.
LinkCosts less_disturbed(const LinkCosts& costs, const LinkCosts& others);

/// Costs that explain the samples. Others disturb a measurement in one direction only, so the
/// lower quartile stands for each kind of sample; `defaults` stand in where samples are missing.
///
/// Threads: pure; any.
MemoryCost fit_memory(const MemorySamples& samples, const MemoryCost& defaults = {});
/// Bandwidth is that of the first stream, the burst the largest that any stream saw: pauses hide
/// some, and nothing makes them larger.
NetworkCost fit_network(const NetworkSamples& samples, const NetworkCost& defaults = {});
/// The rate of each node's link: both ends of a stream reach the rate of the stream.
std::vector<double> fit_node_rates(const NetworkSamples& samples, int node, int num_nodes);

/// One set of costs from what all ranks measured, by rank: the median of each node, of which the
/// slowest counts, and the slowest link between nodes, with the largest burst that any had. A
/// node's link is as fast as the fastest stream over it; `node_rates` stays empty unless links
/// differ by more than noise. What nobody measured keeps
/// its default.
LinkCosts combine_costs(const std::vector<MeasuredCosts>& by_rank, const ProcessGrid& grid,
                        LinkCosts defaults = {});

using Arrivals = std::span<const NetworkSamples::Arrival>;

/// The link that a stream came over. Units: bytes, and bytes per microsecond.
struct StreamFit {
  double bytes_per_us;
  double burst_bytes;
};

/// The value below which so much of all values lies. Before: there are values.
double quantile(std::vector<double> values, double share);

/// The rates that parts of an eighth came at, after the first eighth of the time: bursts pass in
/// less, or there is no telling what is one. 0 for parts that came at once. Before: arrivals.
std::vector<double> part_rates(Arrivals arrivals);

/// The rate that parts of the stream came at, as the median of parts has it, and what the stream
/// was ahead of that:
///
///   bytes |            _.'     a line of that rate over all of it meets time 0 at the burst, which
///         |        _.-'        counts only if it came at more than 1.5 times the rate
///         |   . - |
///         | .'  a pause, and what a bucket had saved up when it was over
///         +------------- time
///
/// A rank that is kept from its core makes the parts with the pause slow and the one behind it
/// fast, but not the others. If most are behind pauses, only the rate of all is certain: no link
/// becomes much faster. Threads: pure; any.
std::optional<StreamFit> fit_stream(Arrivals arrivals);

}  // namespace kolo
