#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "trainer/data/batch.h"
#include "trainer/data/batch_memory.h"
#include "trainer/data/dataset.h"
#include "trainer/data/prefetcher.h"
#include "trainer/data/sample_order.h"
#include "trainer/data/sharding.h"

namespace kolo::trainer {

/// Serves one rank's share of a data set. With threads, it prepares the batches that follow the one
/// in use; what it serves is the same with any number of them.
///
/// Threads: one. `dataset` outlives the loader.
class DataLoader {
 public:
  struct Options {
    std::size_t ranks;
    std::size_t rank;
    std::size_t batch;             ///< Samples of a rank in one pass.
    std::size_t accumulation = 1;  ///< Passes of a step.
    /// Seed of the permutations, one for each epoch; empty keeps the order.
    std::optional<std::uint64_t> seed = std::nullopt;
    Uneven uneven = Uneven::kPad;
    std::size_t threads = 0;  ///< Threads that prepare batches; 0: `load` does it.
  };

  DataLoader(const Dataset& dataset, const Options& options);

  std::size_t steps_per_epoch() const { return sharding_.steps(); }

  /// Before: step < steps_per_epoch(), pass < accumulation. The result is valid until the next
  ///         call. Threads pay off where epochs, steps and passes follow each other.
  /// Errors: those of the data set, also from threads.
  Batch load(std::uint64_t epoch, std::size_t step, std::size_t pass = 0);

  /// Time that `load` has taken so far.
  std::chrono::nanoseconds waited() const { return waited_; }

 private:
  Batch prepare(std::uint64_t number, std::size_t slot);

  const Dataset& dataset_;
  Options options_;
  Sharding sharding_;
  SampleOrder order_;
  std::vector<BatchMemory> memories_;
  std::chrono::nanoseconds waited_{0};
  std::optional<Prefetcher> prefetcher_;  // Last: its threads use the others.
};

}  // namespace kolo::trainer
