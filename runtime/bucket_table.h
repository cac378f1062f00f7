#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/schedule/executor.h"
#include "fusion/arena.h"
#include "topology/process_grid.h"

namespace kolo {

/// Whoever a bucket belongs to. Threads: the engine's.
class BucketOwner {
 public:
  virtual ~BucketOwner() = default;
  /// The owner's bucket number `index` has finished an iteration.
  virtual void bucket_finished(std::size_t index) = 0;
  /// Everything of its current iteration is on the device's streams; comes before
  /// `bucket_finished`.
  virtual void bucket_enqueued(std::size_t index) = 0;
  /// Its current iteration fails, and every later one.
  virtual void bucket_failed(const Error& error) = 0;
  /// Threads that wait for it.
  virtual const std::atomic<int>& waiters() const = 0;
};

/// All buckets of a job with their places in arena, flags and tags. Ranks add and remove in the
/// coordinator's order of decisions, so the places are the same on all ranks. Threads: the
/// engine's.
class BucketTable {
 public:
  struct Bucket {
    BucketOwner* owner = nullptr;                  ///< Null once removed.
    std::size_t index = 0;                         ///< The owner's number for it.
    std::optional<std::size_t> arena_offset = {};  ///< Of a host bucket.
    std::uint64_t iteration = 0;                   ///< The one under way, or the next.
    bool running = false;                          ///< In the executor.
    bool is_eager = false;                         ///< Starts as soon as it is ready here.
    bool is_ready_again = false;    ///< For the next iteration, while this one is running.
    std::size_t network_bytes = 0;  ///< Sent to other nodes per iteration.
    std::string text = {};          ///< What it is, for errors.
  };

  BucketTable(Executor& executor, const ProcessGrid& grid, std::size_t arena_bytes,
              std::uint32_t flags);

  /// Makes a bucket for `schedule`, of which the binding's bucket, first_flag and places in the
  /// arena are filled in. Errors: KoloError(kResources).
  BucketId add(Schedule schedule, Binding binding, BucketOwner& owner, std::size_t index,
               std::string text);

  /// Frees the arena space of an idle bucket. Its number is not used again.
  void remove(BucketId id);

  Bucket& operator[](BucketId id) { return *buckets_[id]; }

 private:
  Executor& executor_;
  const ProcessGrid& grid_;
  ArenaAllocator arena_;
  std::uint32_t flags_;
  std::uint32_t next_flag_ = 0;
  std::vector<std::unique_ptr<Bucket>> buckets_;
};

}  // namespace kolo
