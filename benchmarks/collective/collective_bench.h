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

/// Minimum number of timed iterations per row if `CollectiveOptions::iterations` is 0. It suffices
/// for a median, but a 99th percentile needs 100 iterations (see `Summary`).
inline constexpr int kLeastIterations = 10;

struct CollectiveOptions {
  std::vector<std::size_t> sizes;  ///< Sizes to measure, in bytes.
  std::vector<Home> homes = {Home::kArena};
  std::vector<bool> places = {true};  ///< True: in place, false: out of place.
  CollectiveCase what = {};           ///< The dtype, operation and wire dtype of all cases.
  int iterations = 0;  ///< Per row. 0: chosen by size, within `seconds`, at least kLeastIterations.
  double seconds = 1;  ///< Time limit for the timed iterations of a row.
  int warmup = 5;      ///< Untimed iterations before each round, at most as many as are timed.
  int rounds = 5;      ///< Number of rounds per size. Each round measures every system.
  /// Whether a barrier precedes each call. Without a barrier, a rank that waits for no other rank,
  /// such as the root of a broadcast, runs ahead; the row then shows throughput, not the time of
  /// one call.
  bool together = false;
  /// Whether each call is preceded by writing the contributions anew and by a barrier. The
  /// contributions are then in the cache of the rank that wrote them, as in a program. Unchanged
  /// contributions may still be in the caches of peers that read them in the previous call.
  bool fresh = true;
};

/// The measurements of one case on one system.
struct CollectiveRow {
  std::string system;
  CollectiveCase what;
  std::optional<std::string> library;  ///< Name and version of the system's library.
  std::string algorithm;  ///< The algorithm with the lowest median, if the system has several.
  std::vector<std::string> candidates = {};  ///< All measured algorithms, including `algorithm`.
  int iterations = 0;
  bool together = false, fresh = true;  ///< See `CollectiveOptions`.
  /// Mean time of an iteration on the rank with the largest mean, as in a loop of calls.
  double mean_us = 0;
  /// Statistics of the slowest rank's time in each iteration, which is the time of a single call.
  /// If ranks share cores, a different rank is slow in each iteration, so the mean of these times
  /// exceeds `mean_us`.
  Summary slowest_us;
  std::vector<double> rounds_us = {};  ///< The median time of each round, in microseconds.
  double algbw = 0, busbw = 0;         ///< GB/s (GB = 10^9 bytes), computed from `mean_us`.
  /// Bytes that the busiest sender sent per iteration; empty if the system does not count them.
  std::optional<std::uint64_t> wire_bytes = std::nullopt;
  /// Number of wrong elements over all ranks, counted before and after the timed iterations. Empty
  /// if the system computes no results.
  std::optional<std::uint64_t> wrong = std::nullopt;
};

/// Measures every case on every system, and checks the results. Systems alternate within a size, in
/// a random order for each round, so that no system always runs after the same one and finds the
/// same data in the caches. All algorithms of a system are measured in the first round; those 1.5
/// times slower than its best are then dropped. Calls `report` with each row as soon as it is
/// complete. Collective; all ranks return equal rows.
std::vector<CollectiveRow> measure_collective(
    Runtime& runtime, const std::vector<std::unique_ptr<CollectiveSystem>>& systems,
    const CollectiveOptions& options, const std::function<void(const CollectiveRow&)>& report);

}  // namespace kolo::bench
