#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "comm/base/mutex.h"
#include "trainer/data/batch.h"

namespace kolo::trainer {

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

}  // namespace kolo::trainer
