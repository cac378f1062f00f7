#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/coordinator/last_activity.h"
#include "comm/coordinator/proposal_key.h"
#include "comm/schedule/executor.h"
#include "comm/transport/transport.h"
#include "fusion/arena.h"
#include "runtime/buckets/bucket_plan.h"
#include "topology/process_grid.h"

namespace kolo {

/// Allocates the flags of a job to buckets, first fit. Ranks that take and give back in the same
/// order get the same flags. The values of a flag only grow: a new user learns how far the last one
/// raised it, and continues from there. Threads: one.
class FlagRanges {
 public:
  /// What the values of a flag count: iterations, or launches of a device, which have an order of
  /// their own. A flag that has had one use is never given to the other.
  enum class Use : std::uint8_t { kIterations, kLaunches };

  struct Range {
    std::uint32_t first = 0;
    std::uint64_t raised_to = 0;  ///< The highest value of any user so far.
  };

  explicit FlagRanges(std::uint32_t limit) : limit_(limit) {}

  std::uint32_t limit() const { return limit_; }

  /// Empty if there are not as many contiguous flags.
  std::optional<Range> take(std::uint32_t count, Use use);

  /// Gives back `count` flags from `first` on, which came from `take` and were raised to
  /// `raised_to` at most.
  void give_back(std::uint32_t first, std::uint32_t count, std::uint64_t raised_to);

 private:
  struct Flag {
    bool is_taken = false;
    std::optional<Use> use = {};  // the one that it has had
    std::uint64_t raised_to = 0;
  };

  const std::uint32_t limit_;
  std::vector<Flag> flags_;  // all flags ever taken, by index
};

/// The owner of a bucket: an operation or a gradient set. Threads: the engine's.
class BucketOwner : public Waitable {
 public:
  virtual ~BucketOwner() = default;
  /// The owner's bucket number `index` is ready on all ranks, and begins an iteration.
  virtual void bucket_started(std::size_t) {}
  /// The current iteration of the owner's bucket is enqueued on the device's streams; called before
  /// `bucket_finished`.
  virtual void bucket_enqueued(std::size_t) {}
  /// The owner's bucket number `index` has finished an iteration. The owner decides what follows,
  /// such as another use of the name.
  virtual void bucket_finished(std::size_t index) = 0;
  /// The iteration of the owner's bucket number `index` is abandoned on all ranks, and no longer
  /// touches memory.
  virtual void bucket_abandoned(std::size_t) {}
  /// The owner has failed: it runs no more iterations.
  virtual bool failed() const { return false; }
  /// All ranks reject an iteration of one of its buckets: this iteration and all later ones fail.
  virtual void bucket_rejected(const Error& error) = 0;
  /// This rank has joined: its bucket takes part without data in this many uses that have not ended
  /// here, now or when it can. Called again until they have ended. Returns the obstacle if that is
  /// impossible; empty otherwise.
  virtual std::string_view stand_in(std::uint64_t uses) = 0;
  /// Uses of this rank wait for their turn.
  virtual bool has_queued_uses() const { return false; }
  /// The owner's buckets that no rank uses any more once `id` is rejected.
  virtual std::vector<BucketId> buckets_rejected_with(BucketId id) const = 0;
};

/// All buckets of a job with their ranges of arena, flags and tags. Ranks add and remove buckets in
/// the coordinator's order of decisions, so the ranges are the same on all ranks.
///
/// Later buckets reuse the ranges of a removed one. Flags, counters and tags never go back: the
/// next bucket with the same number continues after the last iteration of the removed one, and the
/// next user of a flag starts above its last value.
///
/// Threads: the engine's.
class BucketTable {
 public:
  /// The progress of a bucket. Only `BucketRunner` changes it while the bucket is in use.
  struct State {
    std::uint64_t iteration = 0;  ///< The current one, or the next.
    bool running = false;         ///< The executor runs the current one.
    /// For the next iteration, while this one is running.
    bool is_ready_again = false;
    /// This iteration and all later ones are rejected.
    std::optional<std::uint64_t> rejected = {};
  };

  struct Bucket {
    BucketOwner* owner = nullptr;                  ///< Null once removed.
    std::size_t index = 0;                         ///< The owner's number for the bucket.
    std::optional<std::size_t> arena_offset = {};  ///< Offset of its own range of the arena.
    bool is_eager = false;                         ///< Starts as soon as it is ready on this rank.
    bool is_mutual = true;                         ///< See `Schedule::mutual`.
    std::uint16_t uses_ahead = 0;                  ///< See `needs_agreement`.
    std::size_t network_bytes = 0;                 ///< Sent to other nodes per iteration.
    std::string text = {};                         ///< Description for errors.
    std::uint64_t name = 0;                        ///< `RequestInfo::name`; 0 for gradients.
    std::uint64_t sequence = 0;                    ///< `RequestInfo::sequence`; 0 for gradients.
    std::uint32_t first_flag = 0;
    std::uint32_t flag_count = 0;
    std::uint64_t flag_base = 0;
    State state = {};

    /// Whether all ranks agree before this iteration starts. An eager bucket that is not mutual and
    /// uses messages agrees every `uses_ahead` iterations: otherwise a rank that only sends could
    /// run ahead without limit, and its messages would fill the memory of a slow rank.
    bool needs_agreement() const {
      return !is_eager || (uses_ahead != 0 && state.iteration % uses_ahead == uses_ahead - 1U);
    }
  };

  /// `acts` may refer to the text of a bucket. All arguments outlive it.
  BucketTable(Executor& executor, const ProcessGrid& grid, const TransportLimits& limits,
              LastActivity& acts);

  /// Adds a bucket for `plan`, and fills in its binding's bucket number, flags and arena offsets.
  /// If its tensors lie in the arena, `place` says where; otherwise it gets a range. Errors:
  /// KoloError(kResources).
  BucketId add(BucketPlan plan, BucketOwner& owner, std::size_t index, std::string text,
               std::optional<std::size_t> place = std::nullopt);
  /// See `RequestInfo::name`.
  void set_name(BucketId id, std::uint64_t key) { buckets_[id]->name = key; }
  /// For the next use of the bucket; see `RequestInfo::sequence`.
  void set_sequence(BucketId id, std::uint64_t key) { buckets_[id]->sequence = key; }

  /// Whether more than three quarters of the bucket numbers or of the arena are in use; the same on
  /// all ranks.
  bool is_crowded() const;

  /// Arena space for tensors that outlive changes of buckets. Errors: KoloError(kResources).
  std::size_t reserve(std::size_t bytes) { return arena_.allocate(bytes); }
  void release(std::size_t offset) { arena_.release(offset); }

  /// Gives back the ranges of a bucket. Precondition: every rank has finished the same iterations
  /// of the bucket and begins no other; if one was rejected, no rank has begun a later one, and all
  /// have abandoned it.
  ///
  /// Some ranges of a rejected bucket are never given back: all of them if its messages may still
  /// be in flight, or if some ranks may be past the iteration; its number if arrivals of some ranks
  /// were counted.
  void remove(BucketId id);

  const Bucket* find(BucketId id) const {
    return id < buckets_.size() && buckets_[id]->owner != nullptr ? buckets_[id].get() : nullptr;
  }
  const Bucket& operator[](BucketId id) const { return *buckets_[id]; }
  State& state(BucketId id) { return buckets_[id]->state; }

 private:
  Executor& executor_;
  const ProcessGrid& grid_;
  LastActivity& acts_;
  const BucketId most_buckets_;
  ArenaAllocator arena_;
  FlagRanges flags_;
  /// Removed ones, too: they keep their iteration counts.
  std::vector<std::unique_ptr<Bucket>> buckets_;
  std::set<BucketId> unused_;
};

}  // namespace kolo
