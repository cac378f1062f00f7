#pragma once

#include <algorithm>
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

/// Allocates the flags of a job to buckets, first fit. Ranks that call it in the same order get the
/// same flags. The value of a flag only grows: the next user of a flag gets the last value, and
/// continues from there. Threads: one.
class FlagRanges {
 public:
  /// The unit in which a flag counts: iterations, or device launches, whose order differs. A flag
  /// keeps its unit for ever.
  enum class Use : std::uint8_t { kIterations, kLaunches };

  struct Range {
    std::uint32_t first = 0;
    std::uint64_t raised_to = 0;  ///< The highest value of these flags so far.
  };

  explicit FlagRanges(std::uint32_t limit) : limit_(limit) {}

  std::uint32_t limit() const { return limit_; }

  /// Takes `count` contiguous flags. Returns an empty result if there are not enough.
  std::optional<Range> take(std::uint32_t count, Use use);

  /// Gives back `count` flags from `first` on, which `take` returned; `raised_to` is their maximum.
  void give_back(std::uint32_t first, std::uint32_t count, std::uint64_t raised_to);

 private:
  struct Flag {
    bool is_taken = false;
    std::optional<Use> use = {};  // empty until first taken
    std::uint64_t raised_to = 0;
  };

  const std::uint32_t limit_;
  std::vector<Flag> flags_;  // by index, up to the highest one ever taken
};

/// The owner of a bucket: an operation or a gradient set. Threads: the engine's.
class BucketOwner : public Waitable {
 public:
  virtual ~BucketOwner() = default;
  /// Called when the owner's bucket number `index` begins an iteration.
  virtual void bucket_started(std::size_t) {}
  /// Called when the current iteration of a bucket is enqueued on the device's streams, before
  /// `bucket_finished`.
  virtual void bucket_enqueued(std::size_t) {}
  /// Called when the owner's bucket number `index` has finished an iteration; may begin another
  /// use.
  virtual void bucket_finished(std::size_t index) = 0;
  /// Called when the iteration of a bucket is abandoned on all ranks, and no longer uses memory.
  virtual void bucket_abandoned(std::size_t) {}
  /// Returns whether the owner has failed and runs no more iterations.
  virtual bool failed() const { return false; }
  /// Called when all ranks reject an iteration of one of the owner's buckets. Fails this iteration
  /// and all later ones.
  virtual void bucket_rejected(const Error& error) = 0;
  /// Makes this joined rank run the bucket `uses` more times without data, now or later. Called
  /// again until these runs have finished. Returns the reason if that is impossible, else an empty
  /// text.
  virtual std::string_view stand_in(std::uint64_t uses) = 0;
  /// Returns whether uses by this rank are queued.
  virtual bool has_queued_uses() const { return false; }
  /// The owner's buckets that no rank uses any more after bucket `id` is rejected.
  virtual std::vector<BucketId> buckets_rejected_with(BucketId id) const = 0;
};

/// All buckets of a job with their ranges of arena, flags and tags. Ranks add and remove buckets in
/// the coordinator's order of decisions, so the ranges are the same on all ranks.
///
/// Later buckets reuse the ranges of a removed bucket. Iterations and flags never count backwards:
/// the next bucket with the same number continues after the last iteration of the removed bucket,
/// and the next user of a flag starts above its last value.
///
/// Threads: the engine's.
class BucketTable {
 public:
  /// The progress of a bucket. Only `BucketRunner` changes it while the bucket is in use.
  struct State {
    std::uint64_t iteration = 0;  ///< Number of the current or next iteration.
    bool running = false;         ///< Whether the executor runs it.
    /// Whether the bucket is ready for the next iteration while the current one is running.
    bool is_ready_again = false;
    /// The first rejected iteration; all later ones are rejected, too.
    std::optional<std::uint64_t> rejected = {};
  };

  struct Bucket {
    BucketOwner* owner = nullptr;                  ///< Null once removed.
    std::size_t index = 0;                         ///< The owner's number for the bucket.
    std::optional<std::size_t> arena_offset = {};  ///< Its range of the arena, if it has one.
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

    /// Returns whether all ranks must agree before this iteration starts. An eager bucket that uses
    /// messages and is not mutual needs an agreement every `uses_ahead` iterations: otherwise a
    /// rank that only sends could run ahead without limit, and fill the memory of a slow rank with
    /// messages.
    bool needs_agreement() const {
      return !is_eager || (uses_ahead != 0 && state.iteration % uses_ahead == uses_ahead - 1U);
    }
  };

  /// `acts` may refer to the text of a bucket. All arguments must outlive this object.
  BucketTable(Executor& executor, const ProcessGrid& grid, const TransportLimits& limits,
              LastActivity& acts);

  /// Adds a bucket for `plan`, and fills in its binding's bucket number, flags and arena offsets.
  /// `place` is the arena offset of a bucket whose gradients already are in the arena; without it,
  /// the bucket gets a range. Errors: KoloError(kResources).
  BucketId add(BucketPlan plan, BucketOwner& owner, std::size_t index, std::string text,
               std::optional<std::size_t> place = std::nullopt);
  /// Sets the name hash of the bucket; see `RequestInfo::name`.
  void set_name(BucketId id, std::uint64_t key) { buckets_[id]->name = key; }
  /// Sets the sequence hash of the bucket's next use; see `RequestInfo::sequence`.
  void set_sequence(BucketId id, std::uint64_t key) { buckets_[id]->sequence = key; }

  /// Returns whether more than three quarters of the bucket numbers or of the arena are in use;
  /// equal on all ranks.
  bool is_crowded() const;

  /// Allocates arena space for tensors that outlive buckets. Errors: KoloError(kResources).
  std::size_t reserve(std::size_t bytes) { return arena_.allocate(bytes); }
  void release(std::size_t offset) { arena_.release(offset); }

  /// Gives back the ranges of a bucket. Precondition: all ranks have finished the same iterations
  /// of the bucket and begin no more. If an iteration was rejected, all ranks have abandoned it,
  /// and none has begun a later one.
  ///
  /// A rejected bucket keeps all its ranges if its messages may still be in flight, or if some
  /// ranks may have finished the rejected iteration. A rejected bucket that is not eager keeps its
  /// number, because some ranks may have asked for agreement under this number.
  void remove(BucketId id);

  /// Whether an iteration was rejected, so that messages of it may never be received.
  bool has_rejected() const {
    return std::ranges::any_of(
        buckets_, [](const auto& bucket) { return bucket->state.rejected.has_value(); });
  }

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
  /// All buckets by number. Removed buckets stay, because their iteration counts are needed.
  std::vector<std::unique_ptr<Bucket>> buckets_;
  std::set<BucketId> unused_;
};

}  // namespace kolo
