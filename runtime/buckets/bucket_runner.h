#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <string_view>
#include <utility>

#include "comm/coordinator/coordinator.h"
#include "comm/schedule/executor.h"
#include "runtime/buckets/bucket_table.h"
#include "runtime/wait/caught.h"

namespace kolo {

/// Takes each iteration of a bucket from "ready here" to "finished here", and tells the owner.
///
///   arrive ──► agreed on all ranks ──► start ──► enqueued (device only) ──► finish
///     └──────── eager ───────────────────▲
///
/// How far a bucket is stands in the table (`BucketTable::State`) and changes here alone. Others
/// keep only what they alone need: the executor the number that labels messages and flags, the
/// coordinator what to tell peers who ask, a gradient set how many of its buckets are over.
///
/// Threads: the engine's; `network_bytes` any.
class BucketRunner {
 public:
  /// Everything outlives it.
  BucketRunner(Coordinator& coordinator, Executor& executor, BucketTable& buckets,
               Activity& activity)
      : coordinator_(coordinator), executor_(executor), buckets_(buckets), activity_(activity) {}

  /// The bucket is ready on this rank.
  void arrive(BucketId id);
  /// It is ready on all ranks.
  void start(BucketId id);
  /// The executor has put all of it on the device's streams.
  void enqueued(BucketId id);
  /// The executor has finished it.
  void finish(BucketId id);
  /// Tells owners of rejections once no peer writes to their tensors.
  void poll_revoking();
  /// All ranks reject an iteration of a bucket: its owner fails. If ranks may differ about whether
  /// it has run, the job does. Iterations before the first one without a rank that has closed end
  /// well.
  void reject(const Topic& rejected, const Error& error);
  /// All ranks reject what some of them proposed instead of a use of the bucket: if ranks may have
  /// used it more often than others, its owner fails, and no rank uses it again.
  void give_up(BucketId id, const Error& error);

  /// Uses of a bucket up to this one, if ranks still take part in it, that have not ended here.
  std::uint64_t uses_until(const Topic& topic) const;
  /// See `BucketOwner::stand_in`. Before: `uses_until` is not zero.
  std::string_view stand_in(const Topic& topic, std::uint64_t uses) {
    return buckets_[bucket_of(topic.key)].owner->stand_in(uses);
  }
  std::string_view text_of(const Topic& topic) const;
  /// A use of this rank runs or waits for its turn. Before: `uses_until` is not zero.
  bool is_in_use(const Topic& topic) const {
    const BucketTable::Bucket& bucket = buckets_[bucket_of(topic.key)];
    return bucket.state.running || bucket.owner->has_queued_uses();
  }

  /// Bytes that finished buckets have sent to other nodes.
  std::uint64_t network_bytes() const { return network_bytes_.load(std::memory_order_relaxed); }

 private:
  void abandon(BucketId id);
  void reject_owner(BucketId id, const Error& error);
  bool has_earlier(const Topic& rejected) const;
  void reject_later(BucketId ended);

  Coordinator& coordinator_;
  Executor& executor_;
  BucketTable& buckets_;
  Activity& activity_;
  std::map<BucketId, std::pair<Topic, Error>> rejections_;  // once earlier iterations have ended
  // Of owners to whose tensors a peer writes; first errors.
  std::map<BucketId, Error> revoking_;
  std::atomic<std::uint64_t> network_bytes_{0};
};

}  // namespace kolo
