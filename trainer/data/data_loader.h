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

/// Memory of one batch, reused for later batches.
///
/// Threads: one at a time.
class BatchMemory {
 public:
  BatchMemory(const SampleFormat& format, std::size_t batch);

  /// Copies `samples` samples of `dataset`; the i-th has index `index_of(i)`. The tensors of the
  /// result are views of this memory, valid until the next call.
  /// Before: samples is at most the size of the batch; the data set has the format.
  Batch fill(const Dataset& dataset, std::uint64_t epoch, std::size_t samples,
             const std::function<std::size_t(std::size_t i)>& index_of);

 private:
  /// Memory of one field.
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

/// The order of samples in an epoch: a new permutation for each epoch, or always the order of the
/// data set.
///
/// Threads: any.
class SampleOrder {
 public:
  /// Sample indices by position; null means the order of the data set.
  using Indices = std::shared_ptr<const std::vector<std::size_t>>;

  /// `seed` seeds the permutations; empty keeps the order of the data set.
  SampleOrder(std::size_t samples, std::optional<std::uint64_t> seed)
      : samples_(samples), seed_(seed) {}

  /// Cost: caches the permutations of the last two requested epochs.
  Indices of(std::uint64_t epoch) const;

 private:
  struct Known {
    std::uint64_t epoch = 0;
    Indices indices;
  };

  std::size_t samples_;
  std::optional<std::uint64_t> seed_;
  mutable Mutex mutex_;
  mutable std::array<Known, 2> known_ KOLO_GUARDED_BY(mutex_);  // the newest first
};

/// The cores that the ranks of one node share, and the threads that compute on them.
struct LoaderCores {
  std::size_t own;              ///< Cores that this rank may use.
  std::size_t machine;          ///< Cores of the node.
  std::size_t ranks;            ///< Ranks on the node.
  std::size_t compute_threads;  ///< Compute threads per rank.
};

/// Reads the cores available to this process.
LoaderCores find_loader_cores(std::size_t ranks, std::size_t compute_threads);

/// Loader threads for a rank: 1 if the rank has a core beside those of its compute threads, else 0.
std::size_t spare_loader_threads(const LoaderCores& cores);

/// Serves one rank's share of a data set. With threads, it prepares the next batches while one is
/// in use; the batches are the same for any number of threads.
///
/// Batches are numbered. There is one buffer more than there are threads, and each batch is
/// prepared in one of them. While batch n is in use, n + 1, n + 2, … are being prepared:
///
///     2 threads, 4 in use:   memory 0: 6   memory 1: 4 (in use)   memory 2: 5
///
/// Threads: one. `dataset` outlives the loader.
class DataLoader {
 public:
  struct Options {
    std::size_t ranks;
    std::size_t rank;
    std::size_t batch;             ///< Samples per rank in one pass.
    std::size_t accumulation = 1;  ///< Passes per step.
    /// Seed of the permutations, one for each epoch; empty keeps the order.
    std::optional<std::uint64_t> seed = std::nullopt;
    Uneven uneven = Uneven::kPad;
    std::size_t threads = 0;  ///< Batches that are prepared ahead; 0: `load` prepares them.
  };

  DataLoader(const Dataset& dataset, const Options& options);

  std::size_t steps_per_epoch() const { return sharding_.steps(); }

  /// Before: step < steps_per_epoch(), pass < accumulation. The result is valid until the next
  ///         call. Threads help only if calls follow the order of epochs, steps and passes.
  /// Errors: those of the data set, also those that loader threads met.
  Batch load(std::uint64_t epoch, std::size_t step, std::size_t pass = 0);

  /// Total time that callers spent in `load`.
  std::chrono::nanoseconds waited() const { return waited_; }

 private:
  /// Fills the buffer that belongs to this batch number.
  Batch prepare(std::uint64_t number);
  /// Starts to prepare the next batches before `end`, one per thread.
  void prepare_ahead(std::uint64_t end);

  const Dataset& dataset_;
  Options options_;
  Sharding sharding_;
  SampleOrder order_;
  std::vector<BatchMemory> memories_;
  std::chrono::nanoseconds waited_{0};
  std::uint64_t next_ = 0;                // batch number of the first of `ahead_`
  std::deque<std::future<Batch>> ahead_;  // Last: its threads use the other members.
};

}  // namespace kolo::trainer
