#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "benchmarks/all_reduce/all_reduce_system.h"
#include "benchmarks/common/samples.h"
#include "runtime/api/kolo.h"

namespace kolo::bench {

struct AllReduceOptions {
  std::vector<std::size_t> sizes;  ///< Bytes.
  std::vector<Home> homes = {Home::kArena};
  bool out_of_place = false;  ///< Beside in place.
  AllReduceCase what = {};    ///< Dtype, operation and wire of every case.
  int iterations = 0;         ///< Per row; 0: by size, within `seconds`.
  double seconds = 1;         ///< For the timed iterations of a row, which are 3 at least.
  int warmup = 5;             ///< Before each round; fewer where iterations are few.
  int rounds = 5;             ///< Systems take turns this often within one size.
};

/// One case on one system. Times are those of the slowest rank of each iteration.
struct AllReduceRow {
  std::string system;
  AllReduceCase what;
  std::string algorithm;  ///< The one of several that had the least median.
  int iterations = 0;
  Summary time_us;
  double algbw = 0, busbw = 0;  ///< GB/s, GB = 10^9 bytes, of the mean.
  /// Per iteration, of the rank that sent most; none if the system does not count.
  std::optional<std::uint64_t> wire_bytes = std::nullopt;
  /// Elements, over all ranks, before and after the timed iterations; none for a limit.
  std::optional<std::uint64_t> wrong = std::nullopt;
};

/// Measures every case on every system, all of one size in turns, and checks the sums. Of a system
/// with several ways all are measured, but those that are 1.5 times slower than its best drop out
/// after the first round. Collective; rows are equal on all ranks. `report` is called with each row
/// as it is ready.
std::vector<AllReduceRow> measure_all_reduce(
    Runtime& runtime, const std::vector<std::unique_ptr<AllReduceSystem>>& systems,
    const AllReduceOptions& options, const std::function<void(const AllReduceRow&)>& report);

}  // namespace kolo::bench
