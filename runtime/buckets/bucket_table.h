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

#include "comm/coordinator/last_act.h"
#include "comm/coordinator/topic.h"
#include "comm/schedule/executor.h"
#include "comm/transport/transport.h"
#include "fusion/arena.h"
#include "runtime/buckets/bucket_plan.h"
#include "topology/process_grid.h"

namespace kolo {

/// Decides which of a job's flags a bucket gets. Ranks that take and give back in the same order
/// get the same. Flags only grow, so whoever takes one learns what it was raised to before, and
/// goes on from there. First fit. Threads: one.
class FlagRanges {
 public:
  /// The values of a flag: numbers of iterations, or of a device's launches, which follow an order
  /// of their own. A flag that has served one use is never given to the other.
  enum class Use : std::uint8_t { kIterations, kLaunches };

  struct Range {
    std::uint32_t first = 0;
    std::uint64_t raised_to = 0;  ///< At most, by whoever had any of them.
  };

  explicit FlagRanges(std::uint32_t limit) : limit_(limit) {}

  std::uint32_t limit() const { return limit_; }

  /// Empty if there are not as many in a row.
  std::optional<Range> take(std::uint32_t count, Use use);

  /// `count` flags from `first` on came from `take`; they were raised to `raised_to` at most.
  void give_back(std::uint32_t first, std::uint32_t count, std::uint64_t raised_to);

 private:
  struct Flag {
    bool is_taken = false;
    std::optional<Use> use = {};  // that it has had
    std::uint64_t raised_to = 0;
  };

  const std::uint32_t limit_;
  std::vector<Flag> flags_;  // that were ever taken, from the first on
};

/// The owner of a bucket: an operation or a gradient set. Threads: the engine's.
class BucketOwner : public Waited {
 public:
  virtual ~BucketOwner() = default;
  /// The owner's bucket number `index` is ready everywhere, and begins an iteration.
  virtual void bucket_started(std::size_t) {}
  /// Everything of its current iteration is on the device's streams; comes before
  /// `bucket_finished`.
  virtual void bucket_enqueued(std::size_t) {}
  /// The owner's bucket number `index` has finished an iteration. The owner decides what follows:
  /// another use of the name, a vote.
  virtual void bucket_finished(std::size_t index) = 0;
  /// The iteration of its bucket number `index` is forgotten on all ranks, and touches no memory
  /// any more.
  virtual void bucket_abandoned(std::size_t) {}
  /// Nothing of it runs any more.
  virtual bool failed() const { return false; }
  /// All ranks reject an iteration of one of its buckets: this one and all later ones fail.
  virtual void bucket_rejected(const Error& error) = 0;
  /// This rank has joined: its bucket takes part in this many uses that have not ended here,
  /// without data of this rank, now or when it can. To be called again until they have ended.
  /// Returns the obstacle if it never can; empty otherwise.
  virtual std::string_view stand_in(std::uint64_t uses) = 0;
  /// Uses of this rank wait for their turn.
  virtual bool has_queued_uses() const { return false; }
  /// The owner's buckets that no rank continues once `id` is rejected.
  virtual std::vector<BucketId> buckets_rejected_with(BucketId id) const = 0;
};

/// All buckets of a job with their places in arena, flags and tags. Ranks add and remove in the
/// coordinator's order of decisions, so the places are the same on all ranks.
///
/// Later buckets reuse what a removed one had. Flags, counters and tags never go back: the next
/// bucket with the same number continues after its last iteration, and the next user of a flag
/// above the value that it was raised to.
///
/// Threads: the engine's.
class BucketTable {
 public:
  /// How far a bucket is. `BucketRunner` alone changes it while the bucket is in use.
  struct State {
    std::uint64_t iteration = 0;                 ///< The one under way, or the next.
    bool running = false;                        ///< In the executor.
    bool is_ready_again = false;                 ///< For the next one, while this one is running.
    std::optional<std::uint64_t> rejected = {};  ///< The iteration, and with it all later ones.
  };

  struct Bucket {
    BucketOwner* owner = nullptr;                  ///< Null once removed.
    std::size_t index = 0;                         ///< The owner's number for it.
    std::optional<std::size_t> arena_offset = {};  ///< What it has of the arena for itself.
    bool is_eager = false;                         ///< Starts as soon as it is ready here.
    bool is_mutual = true;                         ///< See `Schedule::mutual`.
    std::uint16_t uses_ahead = 0;                  ///< See `needs_agreement`.
    std::size_t network_bytes = 0;                 ///< Sent to other nodes per iteration.
    std::string text = {};                         ///< What it is, for errors.
    std::uint64_t name = 0;                        ///< `Subject::name`; 0 for gradients.
    std::uint64_t sequence = 0;                    ///< `Subject::sequence`; 0 for gradients.
    std::uint32_t first_flag = 0;
    std::uint32_t flag_count = 0;
    std::uint64_t flag_base = 0;
    State state = {};

    /// Whether all ranks agree before this iteration starts. Those of eager buckets that are not
    /// mutual do in every so many iterations, if messages carry them: else a rank that only sends
    /// would run ahead for ever, and its messages fill the memory of a rank that is late.
    bool needs_agreement() const {
      return !is_eager || (uses_ahead != 0 && state.iteration % uses_ahead == uses_ahead - 1U);
    }
  };

  /// `acts` may refer to the text of a bucket. Everything outlives it.
  BucketTable(Executor& executor, const ProcessGrid& grid, const TransportLimits& limits,
              LastActNote& acts);

  /// Makes a bucket for `plan`, of whose binding the bucket, flags and places in the arena are
  /// filled in. One whose tensors have a `place` in the arena lies there, else it gets one.
  /// Errors: KoloError(kResources).
  BucketId add(BucketPlan plan, BucketOwner& owner, std::size_t index, std::string text,
               std::optional<std::size_t> place = std::nullopt);
  /// See `Subject::name`.
  void set_name(BucketId id, std::uint64_t key) { buckets_[id]->name = key; }
  /// For the next use of the bucket; see `Subject::sequence`.
  void set_sequence(BucketId id, std::uint64_t key) { buckets_[id]->sequence = key; }

  /// Whether more than three quarters of numbers or arena are in use; the same on all ranks.
  bool is_crowded() const;

  /// Arena space for tensors that stay while buckets change. Errors: KoloError(kResources).
  std::size_t reserve(std::size_t bytes) { return arena_.allocate(bytes); }
  void release(std::size_t offset) { arena_.release(offset); }

  /// Gives back what a bucket has. Before: every rank has finished the same iterations of it
  /// and begins no other; if one was rejected, no rank has begun a later one, and all forgot it.
  ///
  /// A rejected bucket keeps some things for good: everything if its messages may still be in
  /// flight, or if some ranks may be past the iteration; its number if arrivals of some ranks were
  /// counted.
  void remove(BucketId id);

  /// The bucket, if it is in use.
  const Bucket* find(BucketId id) const {
    return id < buckets_.size() && buckets_[id]->owner != nullptr ? buckets_[id].get() : nullptr;
  }
  const Bucket& operator[](BucketId id) const { return *buckets_[id]; }
  State& state(BucketId id) { return buckets_[id]->state; }

 private:
  Executor& executor_;
  const ProcessGrid& grid_;
  LastActNote& acts_;
  const BucketId most_buckets_;
  ArenaAllocator arena_;
  FlagRanges flags_;
  std::vector<std::unique_ptr<Bucket>> buckets_;  // removed ones, too, for their iterations
  std::set<BucketId> unused_;
};

}  // namespace kolo
