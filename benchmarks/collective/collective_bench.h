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

/// The least number of timed iterations of a row if `CollectiveOptions::iterations` is 0: enough
/// for a median. A 99th percentile needs 100 (`Summary`), which large sizes on slow links do not
/// reach.
inline constexpr int kLeastIterations = 10;

struct CollectiveOptions {
  std::vector<std::size_t> sizes;  ///< Bytes.
  std::vector<Home> homes = {Home::kArena};
  std::vector<bool> places = {true};  ///< In place (true), out of place (false).
  CollectiveCase what = {};           ///< Dtype, operation and wire of every case.
  int iterations = 0;  ///< Per row; 0: by size, within `seconds`, and at least kLeastIterations.
  double seconds = 1;  ///< For the timed iterations of a row.
  int warmup = 5;      ///< Iterations before each round; fewer where iterations are few.
  int rounds = 5;      ///< Number of rounds within one size; each measures every system.
  /// A barrier before each call. Without it a rank that waits for nobody, such as the root of a
  /// broadcast, runs ahead, and a row measures how many calls fit into a time.
  bool together = false;
  /// Contributions are written anew before each call, which begins together: as in a program, they
  /// are in the caches of the ranks that wrote them. Untouched ones may still be in the caches of
  /// the peers that read them in the last call.
  bool fresh = true;
};

/// One case on one system.
struct CollectiveRow {
  std::string system;
  CollectiveCase what;
  std::optional<std::string> library;  ///< Of the system, with its version.
  std::string algorithm;  ///< If the system has several, the one with the least median.
  std::vector<std::string> candidates = {};  ///< All algorithms that were measured, with that one.
  int iterations = 0;
  bool together = false, fresh = true;  ///< As in the options.
  /// Mean time of an iteration on the rank where it is largest: what a loop of calls takes.
  double mean_us = 0;
  /// The slowest rank's time in each iteration: what a single call takes. Where ranks share cores,
  /// they take turns at being slow, and the mean of these times exceeds `mean_us`.
  Summary slowest_us;
  std::vector<double> rounds_us = {};  ///< Medians of the rounds, by round.
  double algbw = 0, busbw = 0;         ///< GB/s (GB = 10^9 bytes), from the mean.
  /// Bytes per iteration of the rank that sent most; empty if the system does not count them.
  std::optional<std::uint64_t> wire_bytes = std::nullopt;
  /// Wrong elements over all ranks, before and after the timed iterations; empty if the system
  /// makes no sums.
  std::optional<std::uint64_t> wrong = std::nullopt;
};

/// Measures every case on every system, alternating within a size in an order that changes from
/// round to round, so that nobody always finds the caches of the same one; checks the sums. All
/// algorithms of a system are measured, but those 1.5 times slower than its best are dropped after
/// the first round. Calls `report` with each row as soon as it is complete. Collective; rows are
/// equal on all ranks.
std::vector<CollectiveRow> measure_collective(
    Runtime& runtime, const std::vector<std::unique_ptr<CollectiveSystem>>& systems,
    const CollectiveOptions& options, const std::function<void(const CollectiveRow&)>& report);

}  // namespace kolo::bench
