#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "benchmarks/collective/collective_system.h"
#include "benchmarks/common/samples.h"
#include "runtime/api/kolo.h"

namespace kolo::bench {

/// Minimum number of timed iterations per row if `CollectiveOptions::iterations` is 0: enough for a
/// median. A 99th percentile needs 100 (`Summary`), which large sizes on slow links do not reach.
inline constexpr int kLeastIterations = 10;

struct CollectiveOptions {
  std::vector<std::size_t> sizes;  ///< Bytes.
  std::vector<Home> homes = {Home::kArena};
  std::vector<bool> places = {true};  ///< In place (true), out of place (false).
  CollectiveCase what = {};           ///< Dtype, operation and wire of every case.
  int iterations = 0;  ///< Per row; 0: by size, within `seconds`, and at least kLeastIterations.
  double seconds = 1;  ///< Limit for the timed iterations of a row.
  int warmup = 5;      ///< Iterations before each round; fewer if there are few iterations.
  int rounds = 5;      ///< Number of rounds within one size; each measures every system.
  /// Whether a barrier precedes each call. Without it a rank that waits for no other, such as the
  /// root of a broadcast, runs ahead, and a row measures throughput instead of the time of a call.
  bool together = false;
  /// Whether contributions are written anew before each call, which then begins after a barrier: as
  /// in a program, they are in the caches of the ranks that wrote them. Unchanged contributions may
  /// still be in the caches of peers that read them in the last call.
  bool fresh = true;
};

/// One case on one system.
struct CollectiveRow {
  std::string system;
  CollectiveCase what;
  std::optional<std::string> library;  ///< Library of the system, with its version.
  std::string algorithm;  ///< The algorithm with the lowest median, if the system has several.
  std::vector<std::string> candidates = {};  ///< All measured algorithms, including `algorithm`.
  int iterations = 0;
  bool together = false, fresh = true;  ///< As in the options.
  /// Mean time of an iteration on the rank with the largest mean: the time in a loop of calls.
  double mean_us = 0;
  /// The slowest rank's time in each iteration: the time of a single call. If ranks share cores,
  /// they take turns at being slow, and the mean of these times exceeds `mean_us`.
  Summary slowest_us;
  std::vector<double> rounds_us = {};  ///< Median of each round.
  double algbw = 0, busbw = 0;         ///< GB/s (GB = 10^9 bytes), from the mean.
  /// Bytes per iteration of the rank that sent most; empty if the system does not count them.
  std::optional<std::uint64_t> wire_bytes = std::nullopt;
  /// Wrong elements over all ranks, before and after the timed iterations; empty if the system
  /// computes no results.
  std::optional<std::uint64_t> wrong = std::nullopt;
};

/// Measures every case on every system, and checks the results. Systems alternate within a size, in
/// an order that changes from round to round, so that no system always follows the same one in the
/// caches. All algorithms of a system are measured, but those 1.5 times slower than its best are
/// dropped after the first round. Calls `report` with each row as soon as it is complete.
/// Collective; rows are equal on all ranks.
std::vector<CollectiveRow> measure_collective(
    Runtime& runtime, const std::vector<std::unique_ptr<CollectiveSystem>>& systems,
    const CollectiveOptions& options, const std::function<void(const CollectiveRow&)>& report);

}  // namespace kolo::bench
