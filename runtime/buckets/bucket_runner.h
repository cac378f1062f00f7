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
///   arrive ──► agreed on all ranks ──► start ──► enqueued (device only) ──► finish
///     └──────── eager ───────────────────▲
///
/// The progress of a bucket is in the table (`BucketTable::State`), and only this class changes it.
/// Other classes keep only what they need themselves: the executor keeps the number that labels
/// messages and flags, the coordinator keeps its answers to peers that ask, and a gradient set
/// keeps the number of its buckets whose iteration is over.
///
/// Threads: the engine's. Any thread may call `network_bytes`.
class BucketRunner {
 public:
  /// All arguments outlive it.
  BucketRunner(Coordinator& coordinator, Executor& executor, BucketTable& buckets,
               Activity& activity)
      : coordinator_(coordinator), executor_(executor), buckets_(buckets), activity_(activity) {}

  /// The bucket is ready on this rank.
  void arrive(BucketId id);
  /// The bucket is ready on all ranks.
  void start(BucketId id);
  /// The executor has enqueued the whole iteration on the device's streams.
  void enqueued(BucketId id);
  /// The executor has finished the iteration.
  void finish(BucketId id);
  /// Notifies owners of rejections once no peer writes to their tensors.
  void poll_revoking();
  /// All ranks reject an iteration of a bucket: its owner fails. If ranks may differ about whether
  /// the iteration has run, the job fails. If the error is that a rank has closed, earlier
  /// iterations end first.
  void reject(const ProposalKey& rejected, const Error& error);
  /// All ranks reject a proposal that some of them made instead of using the bucket. If ranks may
  /// have used it unequally often, its owner fails, and no rank uses it again.
  void give_up(BucketId id, const Error& error);

  /// Number of uses of a bucket, up to this one, that have not ended here; 0 if ranks no longer
  /// take part in this one.
  std::uint64_t uses_until(const ProposalKey& key) const;
  /// See `BucketOwner::stand_in`. Precondition: `uses_until` is not zero.
  std::string_view stand_in(const ProposalKey& key, std::uint64_t uses) {
    return buckets_[bucket_of(key.hash)].owner->stand_in(uses);
  }
  std::string_view text_of(const ProposalKey& key) const;
  /// A use of this rank runs or waits for its turn. Precondition: `uses_until` is not zero.
  bool is_in_use(const ProposalKey& key) const {
    const BucketTable::Bucket& bucket = buckets_[bucket_of(key.hash)];
    return bucket.state.running || bucket.owner->has_queued_uses();
  }

  /// Bytes that finished buckets have sent to other nodes.
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
      rejections_;  // once earlier iterations have ended
  // First errors of owners to whose tensors a peer still writes.
  std::map<BucketId, Error> revoking_;
  std::atomic<std::uint64_t> network_bytes_{0};
};

}  // namespace kolo
