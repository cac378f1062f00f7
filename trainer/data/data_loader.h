#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "comm/base/mutex.h"
#include "trainer/data/dataset.h"

namespace kolo::trainer {

/// Memory of one batch, which holds one batch after another.
///
/// Threads: one at a time.
class BatchMemory {
 public:
  BatchMemory(const SampleFormat& format, std::size_t batch);

  /// Copies `samples` samples of `dataset`, the i-th of them with index `index_of(i)`. The tensors
  /// of the result are views of this memory, valid until the next call.
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

/// Which sample stands where in an epoch: a permutation of its own for each epoch, or always the
/// order of the data set.
///
/// Threads: any.
class SampleOrder {
 public:
  /// The samples by position; null stands for 0 1 2 …
  using Indices = std::shared_ptr<const std::vector<std::size_t>>;

  /// `seed` is that of the permutations; empty keeps the order.
  SampleOrder(std::size_t samples, std::optional<std::uint64_t> seed)
      : samples_(samples), seed_(seed) {}

  /// Cost: the permutations of the last two epochs asked for are kept.
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

/// Threads that prepare batches before they are asked for.
///
/// Batches have numbers. While number n is in use, the threads prepare n + 1, n + 2, …, each in one
/// of `slots` memories:
///
///     3 slots, 4 in use:   slot 0: 6   slot 1: 4 (in use)   slot 2: 5
///
/// Threads: `take` and the destructor on one thread; `prepare` runs on the threads of this class,
///          never on two of them with one slot.
class Prefetcher {
 public:
  /// Fills the memory of `slot` with batch `number`. What it throws, `take` of that number throws.
  using Prepare = std::function<Batch(std::uint64_t number, std::size_t slot)>;

  struct Options {
    std::size_t threads;  ///< At least 1.
    std::size_t slots;    ///< At least 2.
    /// Numbers beyond the multiple of it that follows the number in use are not prepared.
    std::uint64_t round = UINT64_MAX;
  };

  Prefetcher(const Options& options, Prepare prepare);
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;
  /// Waits until no batch is being prepared.
  ~Prefetcher();

  /// Waits until batch `number` is there. It is valid until the next call. After another number
  /// than the one that follows the last, preparation begins anew.
  Batch take(std::uint64_t number);

 private:
  struct Slot {
    std::optional<std::uint64_t> number;
    bool is_ready = false;
    Batch batch = {};
    std::exception_ptr error = nullptr;
  };

  void work();
  std::optional<std::uint64_t> wait_for_work();
  void finish(std::uint64_t number, Batch batch, std::exception_ptr error);
  bool may_start() const KOLO_REQUIRES(mutex_);
  Slot& slot_of(std::uint64_t number) KOLO_REQUIRES(mutex_) {
    return slots_[number % options_.slots];
  }

  Options options_;
  Prepare prepare_;
  Mutex mutex_;
  ConditionVariable work_changed_;  // may_start() or is_stopping_
  ConditionVariable slot_changed_;
  bool is_stopping_ KOLO_GUARDED_BY(mutex_) = false;
  std::optional<std::uint64_t> in_use_ KOLO_GUARDED_BY(mutex_);  // empty: nothing is to be started
  std::uint64_t next_ KOLO_GUARDED_BY(mutex_) = 0;               // the next number to start
  std::size_t working_ KOLO_GUARDED_BY(mutex_) = 0;  // threads that are preparing a batch
  std::vector<Slot> slots_ KOLO_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

/// The cores that ranks of one node share, and what computes on them.
struct LoaderCores {
  std::size_t own;              ///< Cores that this rank may use.
  std::size_t machine;          ///< Cores of the node.
  std::size_t ranks;            ///< Ranks on the node.
  std::size_t compute_threads;  ///< Of each rank.
};

/// The cores as they are for this process.
LoaderCores find_loader_cores(std::size_t ranks, std::size_t compute_threads);

/// Threads that prepare batches for a rank: 1 if it has a core for it beside those that compute,
/// else 0.
std::size_t spare_loader_threads(const LoaderCores& cores);

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
