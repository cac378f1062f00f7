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

/// Samples of one rank inside its node. All ranks of the node measure at the same time.
struct MemorySamples {
  struct Pass {
    double working_set_bytes = 0;  ///< Size of the memory that the node's ranks access.
    double bytes = 0;              ///< Bytes read plus bytes written, by all ranks.
    double us = 0;                 ///< Time of the pass, including two flag round trips.
  };
  /// One execution of an algorithm's work on a bucket of `bytes`.
  struct Bucket {
    double bytes = 0;
    double us = 0;
  };
  /// Times from a signal to all peers until the signals of all peers are seen.
  std::vector<double> trips_us = {};
  std::vector<Pass> own_passes = {};  ///< Passes over lines that each rank wrote itself.
  /// All of one size. Several repetitions of the work of `flat`: a copy, one trip, and a sum of all
  /// ranks' copies; then one more trip.
  std::vector<Bucket> gathers = {};
  int gathers_in_a_row = 1;
  /// All of one size. The work of `direct` on the caller's tensors: copies to slots, one trip, a
  /// sum of this rank's part in tensor and slots into all of them, one trip, copies from slots;
  /// with one more trip before and after.
  std::vector<Bucket> slots = {};
  /// All of one size. The work of a reduce-scatter on the caller's tensors: copies of other ranks'
  /// parts to slots, one trip, a sum of this rank's part in tensor and slots; with one more trip
  /// before and after. `packed` writes slots through the cache, `streamed` bypasses it.
  std::vector<Bucket> packed = {}, streamed = {};
  int ranks = 1;  ///< Number of ranks in the node.
};

/// Samples of one rank's communication with ranks of other nodes.
struct NetworkSamples {
  /// The number of bytes received up to a time since the start of a stream.
  struct Arrival {
    double bytes = 0;
    double us = 0;
  };
  /// A continuous transfer in both directions.
  struct Stream {
    int node = 0;  ///< The node at the other end.
    std::vector<Arrival> arrivals = {};
  };
  std::vector<double> round_trips_us = {};  ///< Times of a small message and its answer.
  std::vector<double> bursts_us = {};       ///< Times of `burst_messages` messages and one answer.
  int burst_messages = 1;
  std::vector<Stream> streams = {};
};

/// The costs that one rank has measured; fields that it did not measure are empty.
struct MeasuredCosts {
  std::optional<MemoryCost> memory = {};
  std::optional<NetworkCost> network = {};
  std::vector<double> node_rates = {};  ///< As in `LinkCosts`, for this rank's links.
};

/// Samples of one kind disagree if half of them took more than this many times the shortest one:
/// other work then used the same cores most of the time. The value is a documented default: a cost
/// that is wrong by this factor makes no choice more than twice as slow, as
/// `tests/benchmarks/constants_test.cc` shows.
inline constexpr double kMostSpread = 4;

struct Disagreement {
  std::string_view what;  ///< The kind of samples.
  double shortest_us = 0;
  double median_us = 0;
};

/// Returns the first kind of samples that disagree, if any; its costs are unreliable. Threads: any;
/// pure.
std::optional<Disagreement> disagreement(const MemorySamples& samples);
std::optional<Disagreement> disagreement(const NetworkSamples& samples);

/// If the rates of two measurements of one link differ by more than this factor, at least one was
/// measured on a busy machine. Another program with equal use of the link or the cores leaves half
/// the rate, and this is the geometric mean of 1 and 2.
inline constexpr double kMostDifference = std::numbers::sqrt2;

/// Whether two jobs of the same shape measured the same rates. Measurements under a load that has
/// ended meanwhile are consistent in themselves, so only a second measurement reveals the load.
/// Threads: any; pure.
bool confirms(const LinkCosts& costs, const LinkCosts& others);
/// Returns, for each kind of link, the costs of the measurement with the higher rate, which was
/// less disturbed. Threads: any; pure.
LinkCosts less_disturbed(const LinkCosts& costs, const LinkCosts& others);

/// Returns costs that explain the samples. Disturbances only make samples slower, so the lower
/// quartile represents each kind of sample; `defaults` replace missing samples.
///
/// Threads: pure; any.
MemoryCost fit_memory(const MemorySamples& samples, const MemoryCost& defaults = {});
/// Returns costs that explain the samples. The first stream determines the bandwidth. The burst is
/// the largest of all streams, because pauses can hide a burst but not enlarge it.
NetworkCost fit_network(const NetworkSamples& samples, const NetworkCost& defaults = {});
/// Returns the rate of each node's link, as far as `samples` of a rank on `node` show it: a link is
/// at least as fast as each stream over it. The rate is 0 for nodes without a stream.
std::vector<double> fit_node_rates(const NetworkSamples& samples, int node, int num_nodes);

/// Combines the measurements of all ranks, by rank, into one set of costs: of the medians of all
/// nodes, the slowest; of all links between nodes, the slowest, with the largest burst. A node's
/// link is as fast as the fastest stream over it; `node_rates` stays empty unless links differ by
/// more than noise. Costs that no rank measured keep their defaults.
LinkCosts combine_costs(const std::vector<MeasuredCosts>& by_rank, const ProcessGrid& grid,
                        LinkCosts defaults = {});

using Arrivals = std::span<const NetworkSamples::Arrival>;

/// The rate and burst of the link that carried a stream. Units: bytes, and bytes per microsecond.
struct StreamFit {
  double bytes_per_us;
  double burst_bytes;
};

/// Returns the value below which the fraction `share` of `values` is. Before: `values` is not
/// empty.
double quantile(std::vector<double> values, double share);

/// Returns the rates of overlapping parts of a stream. Each part has an eighth of the arrivals
/// after the first eighth of the stream's time; a burst ends in that first eighth, or cannot be
/// recognised. The rate is 0 for parts that were received at once. Before: `arrivals` is not empty.
std::vector<double> part_rates(Arrivals arrivals);

/// Returns the median rate of a stream's parts, and the burst by which the stream was ahead of it:
///
///   bytes |            _.'     A line of this rate above the stream meets time 0 at the burst.
///         |        _.-'        The burst counts only if it came at more than 1.5 times the rate.
///         |   . - |
///         | .'  a pause, and the bytes that the token bucket saved during the pause
///         +------------- time
///
/// If a rank loses its core, the parts with the pause become slow and the next part fast, but not
/// the other parts. If most parts follow pauses, only the overall rate is certain, so no link
/// appears much faster than it is. Threads: any; pure.
std::optional<StreamFit> fit_stream(Arrivals arrivals);

}  // namespace kolo
