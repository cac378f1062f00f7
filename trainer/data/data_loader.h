#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "trainer/data/dataset.h"
#include "trainer/data/sharding.h"

namespace kolo::trainer {

/// One rank's samples of one step, in memory of the loader.
struct Batch {
  std::span<const std::uint8_t> inputs;   ///< Always a full batch; zeros after the last sample.
  std::span<const std::uint8_t> targets;  ///< Targets of the real samples only.
  std::size_t samples = 0;                ///< Real samples; fewer than a batch at the end.
  std::size_t global_samples = 0;         ///< Real samples of all ranks in this step.
};

/// Serves one rank's share of a data set.
///
/// Threads: one. `dataset` outlives the loader.
class DataLoader {
 public:
  struct Options {
    std::size_t ranks;
    std::size_t rank;
    std::size_t batch;  ///< Samples per rank.
    /// Seed of the permutations, one for each epoch; empty keeps the order.
    std::optional<std::uint64_t> seed;
  };

  DataLoader(const Dataset& dataset, const Options& options);

  std::size_t steps_per_epoch() const { return sharding_.steps(); }

  /// Before: step < steps_per_epoch(). The result is valid until the next call.
  Batch load(std::size_t epoch, std::size_t step);

 private:
  const Dataset& dataset_;
  Options options_;
  Sharding sharding_;
  std::optional<std::size_t> order_epoch_;
  std::vector<std::size_t> order_;
  std::vector<std::uint8_t> inputs_;
  std::vector<std::uint8_t> targets_;
};

}  // namespace kolo::trainer
