#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "benchmarks/all_reduce_system.h"

namespace kolo::bench {

struct AllReduceOptions {
  std::vector<std::size_t> sizes;  ///< Bytes.
  AllReduceCase what;              ///< All but `bytes`.
  int iterations = 0;              ///< Per size and system; 0: by size.
  int warmup = 5;
  int rounds = 5;  ///< Systems take turns this often within one size.
};

/// One size on one system. Times are those of the slowest rank of each iteration.
struct AllReduceRow {
  std::string system;
  std::size_t bytes = 0;
  std::size_t count = 0;
  std::string algorithm;
  double mean_us = 0, min_us = 0, p99_us = 0;
  double algbw = 0, busbw = 0;  ///< GB/s, GB = 10^9 bytes.
  std::optional<std::uint64_t> wire_bytes =
      std::nullopt;         ///< Per iteration, of the rank that sent most.
  std::uint64_t wrong = 0;  ///< Elements, over all ranks.
};

/// Measures every size on every system, systems in turns, and checks the sums. Collective; rows are
/// equal on all ranks. `report` is called with each row as it is ready.
std::vector<AllReduceRow> measure_all_reduce(
    Runtime& runtime, const std::vector<std::unique_ptr<AllReduceSystem>>& systems,
    const AllReduceOptions& options, const std::function<void(const AllReduceRow&)>& report);

}  // namespace kolo::bench
