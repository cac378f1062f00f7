#pragma once

#include <optional>
#include <span>
#include <vector>

#include "topology/link_fit.h"

namespace kolo {

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
