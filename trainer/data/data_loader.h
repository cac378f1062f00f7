#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <vector>

#include "comm/base/mutex.h"
#include "trainer/data/dataset.h"

namespace kolo::trainer {

/// The memory of one batch, reused for later batches.
///
/// Threads: one at a time.
class BatchMemory {
 public:
  BatchMemory(const SampleFormat& format, std::size_t batch);

  /// Copies `samples` samples of `dataset` into this memory; sample i of the batch has index
  /// `index_of(i)` in the data set. The result views this memory and is valid until the next call.
  /// Before: `samples` is at most the batch size; `dataset` has the format of this memory.
  Batch fill(const Dataset& dataset, std::uint64_t epoch, std::size_t samples,
             const std::function<std::size_t(std::size_t i)>& index_of);

 private:
  /// The values of one field for all samples of the batch.
  struct Column {
    DType dtype;
    std::size_t sample_bytes;
    std::vector<std::byte> bytes;

    TensorSlot slot(std::size_t sample);
    TensorView view(std::size_t samples) const;
  };

  static std::vector<Column> columns(const std::vector<Field>& fields, std::size_t batch);

  std::size_t batch_;
  std::vector<Column> inputs_;
  std::vector<Column> targets_;
};

/// The order of samples: a new permutation per epoch, or always the order of the data set.
///
/// Threads: any.
class SampleOrder {
 public:
  /// Sample indices by position in the epoch; null stands for the order of the data set.
  using Indices = std::shared_ptr<const std::vector<std::size_t>>;

  /// `seed` is the seed of the permutations; empty keeps the order of the data set.
  SampleOrder(std::size_t samples, std::optional<std::uint64_t> seed)
      : samples_(samples), seed_(seed) {}

  /// The order in epoch `epoch`. It caches the permutations of two epochs.
  Indices of(std::uint64_t epoch) const;

 private:
  struct Known {
    std::uint64_t epoch = 0;
    Indices indices;
  };

  std::size_t samples_;
  std::optional<std::uint64_t> seed_;
  mutable Mutex mutex_;
  mutable std::array<Known, 2> known_ KOLO_GUARDED_BY(mutex_);  // the most recently made first
};

/// The cores of a node, and how its ranks use them.
struct LoaderCores {
  std::size_t own;              ///< Cores that this process may run on.
  std::size_t machine;          ///< Cores of the node.
  std::size_t ranks;            ///< Ranks on the node.
  std::size_t compute_threads;  ///< Compute threads per rank.
};

/// Counts the cores of the node and those that this process may run on.
LoaderCores find_loader_cores(std::size_t ranks, std::size_t compute_threads);

/// The default number of loader threads: 1 if the rank has more cores than compute threads, else 0.
std::size_t spare_loader_threads(const LoaderCores& cores);

/// Provides one rank's batches of a data set. With threads, it prepares the next batches while the
/// current one is in use. The batches do not depend on the number of threads.
///
/// Batches are numbered. There is one more buffer than there are threads, and batch n uses buffer n
/// mod (threads + 1). While batch n is in use, n + 1, n + 2, … are being prepared:
///
///     2 threads, 4 in use:   memory 0: 6   memory 1: 4 (in use)   memory 2: 5
///
/// Threads: one. `dataset` outlives the loader.
class DataLoader {
 public:
  struct Options {
    std::size_t ranks;
    std::size_t rank;
    std::size_t batch;             ///< Samples per rank in one backward pass.
    std::size_t accumulation = 1;  ///< Backward passes per step.
    /// Seed of the permutations of the epochs; empty keeps the order of the data set.
    std::optional<std::uint64_t> seed = std::nullopt;
    Uneven uneven = Uneven::kPad;
    std::size_t threads = 0;  ///< Threads that prepare batches; 0: `load` prepares them.
  };

  DataLoader(const Dataset& dataset, const Options& options);

  /// Changes the numbers of samples per batch from the next `load` on. `batches` has one number for
  /// each rank, in rank order. Before: their sum is the former sum, so that a step keeps its
  /// samples.
  void take_batches(const std::vector<std::size_t>& batches);

  std::size_t steps_per_epoch() const { return sharding_.steps(); }

  /// Returns batch `pass` of a step; it is valid until the next call. Before: step <
  /// steps_per_epoch(), pass < accumulation. Threads help only if calls follow the order of epochs,
  /// steps and passes.
  /// Errors: those of `Dataset::copy`, also if it failed on a loader thread.
  Batch load(std::uint64_t epoch, std::size_t step, std::size_t pass = 0);

  /// The total time that `load` has taken.
  std::chrono::nanoseconds waited() const { return waited_; }

 private:
  /// Prepares batch `number` in the buffer that belongs to it.
  Batch prepare(std::uint64_t number);
  /// Starts preparing the next batches up to number `end`, one per thread.
  void prepare_ahead(std::uint64_t end);

  const Dataset& dataset_;
  Options options_;
  Sharding sharding_;
  SampleOrder order_;
  std::vector<BatchMemory> memories_;
  std::chrono::nanoseconds waited_{0};
  std::uint64_t next_ = 0;                // number of the first batch in `ahead_`
  std::deque<std::future<Batch>> ahead_;  // declared last because its threads use the other members
};

}  // namespace kolo::trainer
