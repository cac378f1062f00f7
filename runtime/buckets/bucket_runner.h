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

/// Takes each iteration of a bucket from "ready here" to "finished here", and notifies the owner.
///
///   mark_ready ──► agreed on all ranks ──► start ──► enqueued (device only) ──► finish
///     └──────── eager ───────────────────▲
///
/// The progress of a bucket is in the table (`BucketTable::State`), and only this class changes it.
/// Besides, the executor counts the iterations that label messages and flags, the coordinator keeps
/// its answers to peers that ask, and a gradient set counts its finished buckets.
///
/// Threads: the engine's. Any thread may call `network_bytes`.
class BucketRunner {
 public:
  /// All arguments must outlive this object.
  BucketRunner(Coordinator& coordinator, Executor& executor, BucketTable& buckets,
               Activity& activity)
      : coordinator_(coordinator), executor_(executor), buckets_(buckets), activity_(activity) {}

  /// Called when the bucket is ready on this rank. Starts it, or asks for agreement first.
  void mark_ready(BucketId id);
  /// Starts the current iteration of a bucket that is ready on all ranks, or eager.
  void start(BucketId id);
  /// Called when the executor has enqueued the whole iteration on the device's streams.
  void enqueued(BucketId id);
  /// Called when the executor has finished the iteration.
  void finish(BucketId id);
  /// Notifies owners of rejected buckets once no peer writes to their tensors any more.
  void poll_revoking();
  /// Called when all ranks reject an iteration of a bucket: the owner fails. If the iteration may
  /// have run on some ranks only, the job fails. If a rank has closed the job, earlier iterations
  /// finish before the owner fails.
  void reject(const ProposalKey& rejected, const Error& error);
  /// Called when all ranks reject a proposal that some of them made instead of using the bucket. If
  /// ranks may have used the bucket unequally often, the owner fails, and no rank uses the bucket
  /// again.
  void give_up(BucketId id, const Error& error);

  /// Returns the number of uses of a bucket, up to `key`, that have not finished on this rank; 0 if
  /// that use has finished or will never run.
  std::uint64_t uses_until(const ProposalKey& key) const;
  /// See `BucketOwner::stand_in`. Precondition: `uses_until` is not zero.
  std::string_view stand_in(const ProposalKey& key, std::uint64_t uses) {
    return buckets_[bucket_of(key.hash)].owner->stand_in(uses);
  }
  std::string_view text_of(const ProposalKey& key) const;
  /// Returns whether a use by this rank runs or is queued. Precondition: `uses_until` is not zero.
  bool is_in_use(const ProposalKey& key) const {
    const BucketTable::Bucket& bucket = buckets_[bucket_of(key.hash)];
    return bucket.state.running || bucket.owner->has_queued_uses();
  }

  /// Returns the bytes that finished buckets have sent to other nodes.
  std::uint64_t network_bytes() const { return network_bytes_.load(std::memory_order_relaxed); }

 private:
  void abandon(BucketId id);
  void reject_owner(BucketId id, const Error& error);
  bool has_earlier(const ProposalKey& rejected) const;
  void reject_later(BucketId ended);

  Coordinator& coordinator_;
  Executor& executor_;
  BucketTable& buckets_;
  Activity& activity_;
  std::map<BucketId, std::pair<ProposalKey, Error>>
      rejections_;  // to apply when earlier iterations are over
  // First error of each owner to whose tensors a peer still writes, by rejected bucket.
  std::map<BucketId, Error> revoking_;
  std::atomic<std::uint64_t> network_bytes_{0};
};

}  // namespace kolo
