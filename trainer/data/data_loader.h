#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "trainer/data/batch.h"
#include "trainer/data/dataset.h"
#include "trainer/data/sharding.h"

namespace kolo::trainer {

/// Serves one rank's share of a data set.
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
    std::optional<std::uint64_t> seed;
  };

  DataLoader(const Dataset& dataset, const Options& options);

  std::size_t steps_per_epoch() const { return sharding_.steps(); }

  /// Before: step < steps_per_epoch(), pass < accumulation. The result is valid until the next
  ///         call.
  Batch load(std::uint64_t epoch, std::size_t step, std::size_t pass = 0);

 private:
  /// Memory of one field for a whole batch.
  struct Column {
    DType dtype;
    std::size_t sample_bytes;
    std::vector<std::byte> bytes;

    TensorSlot slot(std::size_t sample);
    TensorView view(std::size_t samples) const;
  };

  static std::vector<Column> columns(const std::vector<Field>& fields, std::size_t batch);

  const Dataset& dataset_;
  Options options_;
  Sharding sharding_;
  std::optional<std::uint64_t> order_epoch_;
  std::vector<std::size_t> order_;
  std::vector<Column> inputs_;
  std::vector<Column> targets_;
};

}  // namespace kolo::trainer
