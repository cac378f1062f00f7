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
    double working_set_bytes = 0;  ///< Accessed repeatedly by all ranks of the node together.
    double bytes = 0;              ///< Read plus written, by all ranks.
    double us = 0;                 ///< Includes two flag round trips.
  };
  /// The work of an algorithm on a bucket of `bytes`.
  struct Bucket {
    double bytes = 0;
    double us = 0;
  };
  std::vector<double> trips_us = {};  ///< From a signal to all peers until all of their signals
                                      ///< have arrived.
  std::vector<Pass> own_passes = {};  ///< Passes over lines that each rank wrote itself.
  /// All of one size; several repetitions of the work of `flat`: a copy, one trip, and a sum of all
  /// ranks' copies; then one more trip.
  std::vector<Bucket> gathers = {};
  int gathers_in_a_row = 1;
  /// All of one size; the work of `direct` on the caller's tensors: copies to slots, one trip, a
  /// sum of the own part in tensor and slots into all of them, one trip, copies from slots; plus a
  /// trip before and after.
  std::vector<Bucket> slots = {};
  /// All of one size; the work of a reduce-scatter on the caller's tensors: parts for other ranks
  /// to slots, one trip, a sum of the own part in tensor and slots; plus a trip before and after.
  /// `packed` is written through the cache, `streamed` past it.
  std::vector<Bucket> packed = {}, streamed = {};
  int ranks = 1;  ///< Number of ranks in the node.
};

/// Samples of one rank's communication with ranks of other nodes.
struct NetworkSamples {
  /// Number of bytes that had arrived at a time since the beginning of a stream.
  struct Arrival {
    double bytes = 0;
    double us = 0;
  };
  /// Continuous transfer in both directions.
  struct Stream {
    int node = 0;  ///< The node at the other end.
    std::vector<Arrival> arrivals = {};
  };
  std::vector<double> round_trips_us = {};  ///< A small message and its answer.
  std::vector<double> bursts_us = {};       ///< `burst_messages` small messages, one answer.
  int burst_messages = 1;
  std::vector<Stream> streams = {};
};

/// The costs that one rank has measured; empty where it measured none.
struct MeasuredCosts {
  std::optional<MemoryCost> memory = {};
  std::optional<NetworkCost> network = {};
  std::vector<double> node_rates = {};  ///< As in `LinkCosts`, for the links measured on this rank.
};

/// Samples of one kind disagree if half of them took more than this many times the shortest one:
/// then other work kept the same cores busy most of the time. This is a documented default: a cost
/// that is wrong by this factor makes no choice more than twice as slow, as
/// `tests/benchmarks/constants_test.cc` shows.
inline constexpr double kMostSpread = 4;

struct Disagreement {
  std::string_view what;  ///< The kind of samples.
  double shortest_us = 0;
  double median_us = 0;
};

/// The first kind whose samples disagree; costs derived from it are unreliable. Threads: any; pure.
std::optional<Disagreement> disagreement(const MemorySamples& samples);
std::optional<Disagreement> disagreement(const NetworkSamples& samples);

/// If rates of two measurements of one link differ by more than this, at least one was measured on
/// a busy machine. Another program with equal use of the link or the cores leaves half the rate:
/// this is the geometric mean of 1 and 2.
inline constexpr double kMostDifference = std::numbers::sqrt2;

/// Whether two jobs of one shape measured the same rates. Measurements under a load that has ended
/// in the meantime are consistent in themselves: only a second measurement reveals them. Threads:
/// any; pure.
bool confirms(const LinkCosts& costs, const LinkCosts& others);
/// For each kind of link, the costs of the measurement with the higher rate, which was less
/// disturbed. Threads: any; pure.
LinkCosts less_disturbed(const LinkCosts& costs, const LinkCosts& others);

/// Costs that explain the samples. Disturbances only make samples slower, so the lower quartile
/// represents each kind of sample; `defaults` replace missing samples.
///
/// Threads: pure; any.
MemoryCost fit_memory(const MemorySamples& samples, const MemoryCost& defaults = {});
/// Costs that explain the samples. The first stream gives the bandwidth. The burst is the largest
/// of all streams, because pauses can hide a burst but not enlarge it.
NetworkCost fit_network(const NetworkSamples& samples, const NetworkCost& defaults = {});
/// The rate of each node's link, as far as `samples` of a rank on `node` show it: a link is at
/// least as fast as each stream over it. 0 for nodes without a stream.
std::vector<double> fit_node_rates(const NetworkSamples& samples, int node, int num_nodes);

/// Combines the measurements of all ranks, by rank, into one set of costs: the median of each node,
/// of which the slowest counts, and the slowest link between nodes, with the largest burst. A
/// node's link is as fast as the fastest stream over it; `node_rates` stays empty unless links
/// differ by more than noise. Costs that no rank measured keep their defaults.
LinkCosts combine_costs(const std::vector<MeasuredCosts>& by_rank, const ProcessGrid& grid,
                        LinkCosts defaults = {});

using Arrivals = std::span<const NetworkSamples::Arrival>;

/// The link that carried a stream. Units: bytes, and bytes per microsecond.
struct StreamFit {
  double bytes_per_us;
  double burst_bytes;
};

/// The value below which the fraction `share` of all values lies. Before: `values` is not empty.
double quantile(std::vector<double> values, double share);

/// The rates of overlapping parts of a stream, each with an eighth of the arrivals that follow the
/// first eighth of its time; a burst ends in that first eighth, or cannot be recognised. 0 for
/// parts that arrived at once. Before: `arrivals` is not empty.
std::vector<double> part_rates(Arrivals arrivals);

/// The median rate of the parts of the stream, and the burst by which the stream was ahead of that
/// rate:
///
///   bytes |            _.'     a line of that rate over all of it meets time 0 at the burst, which
///         |        _.-'        counts only if it came at more than 1.5 times the rate
///         |   . - |
///         | .'  a pause, and what a bucket had saved up when it was over
///         +------------- time
///
/// A rank that loses its core makes the parts with the pause slow and the next part fast, but not
/// the others. If most parts follow pauses, only the overall rate is certain, so no link appears
/// much faster than it is. Threads: any; pure.
std::optional<StreamFit> fit_stream(Arrivals arrivals);

}  // namespace kolo
