#include "runtime/buckets/bucket_runner.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace kolo {
namespace {

std::string_view first_line(std::string_view text) { return text.substr(0, text.find('\n')); }

/// Returns whether a rank may finish an iteration that other ranks have not begun.
bool may_end_early(const BucketTable::Bucket& bucket) {
  return bucket.is_eager && !bucket.is_mutual;
}

}  // namespace

void BucketRunner::mark_ready(BucketId id) {
  const BucketTable::Bucket& bucket = buckets_[id];
  BucketTable::State& state = buckets_.state(id);
  if (state.running) {
    // The caller waited on a stream, so it marks gradients while this iteration still runs.
    state.is_ready_again = true;
    return;
  }
  const RequestInfo subject{.text = bucket.text,
                            .waited = *bucket.owner,
                            .name = bucket.name,
                            .sequence = bucket.sequence,
                            .may_end_early = may_end_early(bucket)};
  if (bucket.needs_agreement()) {
    coordinator_.mark_ready(id, state.iteration, subject);
  } else {
    coordinator_.begin(id, state.iteration, subject);
    start(id);
  }
}

void BucketRunner::start(BucketId id) {
  const BucketTable::Bucket& bucket = buckets_[id];
  BucketTable::State& state = buckets_.state(id);
  if (state.rejected) return;  // It was rejected after the agreement.
  activity_.begin(EngineVerb::kStart, first_line(bucket.text));
  state.running = true;
  bucket.owner->bucket_started(bucket.index);
  executor_.start(id, state.iteration);
}

void BucketRunner::enqueued(BucketId id) {
  buckets_[id].owner->bucket_enqueued(buckets_[id].index);
}

void BucketRunner::finish(BucketId id) {
  const BucketTable::Bucket& bucket = buckets_[id];
  BucketTable::State& state = buckets_.state(id);
  activity_.begin(EngineVerb::kComplete, first_line(bucket.text));
  ++state.iteration;
  state.running = false;
  if (bucket.is_eager) coordinator_.end(id);
  coordinator_.acts().completed(bucket.text);
  network_bytes_.fetch_add(executor_.network_bytes(id), std::memory_order_relaxed);
  bucket.owner->bucket_finished(bucket.index);
  if (std::exchange(state.is_ready_again, false) && !bucket.owner->failed()) mark_ready(id);
  if (!rejections_.empty()) reject_later(id);
}

void BucketRunner::reject(const ProposalKey& rejected, const Error& error) {
  const BucketId id = bucket_of(rejected.hash);
  if (buckets_.find(id) == nullptr) return;  // All ranks have removed it.
  const BucketTable::Bucket& bucket = buckets_[id];
  BucketTable::State& state = buckets_.state(id);
  if (Coordinator::is_by_closed(error) && has_earlier(rejected)) {
    rejections_.try_emplace(id, rejected, error);
    return;
  }
  const bool is_past = state.iteration > rejected.round;
  // Waiting threads get the error. A rank that has finished this iteration fails at its next use.
  if ((is_past && !may_end_early(bucket)) || (state.running && !bucket.is_eager)) {
    // A thread submitted the iteration after its rank was judged stuck. Some ranks may have started
    // it (or, if it is eager, finished it) and others not, so no rank can go on.
    coordinator_.fail(error);
    return;
  }
  state.rejected = rejected.round;
  reject_owner(id, error);
}

void BucketRunner::reject_owner(BucketId id, const Error& error) {
  for (const BucketId other : buckets_[id].owner->buckets_rejected_with(id)) abandon(other);
  revoking_.try_emplace(id, error);
  poll_revoking();
}

void BucketRunner::poll_revoking() {
  const auto is_revoked = [this](const auto& each) {
    return std::ranges::none_of(buckets_[each.first].owner->buckets_rejected_with(each.first),
                                [this](BucketId id) { return executor_.is_revoking(id); });
  };
  for (;;) {
    const auto next = std::ranges::find_if(revoking_, is_revoked);
    if (next == revoking_.end()) return;
    const auto [id, error] = *next;
    revoking_.erase(next);
    buckets_[id].owner->bucket_rejected(error);
  }
}

/// Returns whether this rank runs or will run iterations before the rejected one. If the bucket
/// itself is idle, iterations in flight of the owner's other buckets count.
bool BucketRunner::has_earlier(const ProposalKey& rejected) const {
  const BucketId id = bucket_of(rejected.hash);
  const BucketTable::Bucket& bucket = buckets_[id];
  if (bucket.owner->failed()) return false;
  if (bucket.state.iteration < rejected.round) return true;
  const auto is_in_flight = [&](BucketId each) {
    return buckets_[each].state.running || coordinator_.is_pending(bucket_hash(each));
  };
  return !is_in_flight(id) &&
         std::ranges::any_of(bucket.owner->buckets_rejected_with(id), is_in_flight);
}

/// Applies rejections that were delayed until earlier iterations, such as `ended`, are over.
void BucketRunner::reject_later(BucketId ended) {
  const BucketTable::Bucket* const bucket = buckets_.find(ended);
  if (bucket == nullptr) return;
  for (const BucketId id : bucket->owner->buckets_rejected_with(ended)) {
    const auto rejection = rejections_.find(id);
    if (rejection == rejections_.end() || has_earlier(rejection->second.first)) continue;
    const auto [key, error] = std::move(rejections_.extract(rejection).mapped());
    return reject(key, error);
  }
}

/// Rejects the bucket only if uses may end early; otherwise no rank finishes a use before all ranks
/// have begun it, so all ranks have used the bucket equally often.
void BucketRunner::give_up(BucketId id, const Error& error) {
  const BucketTable::Bucket& bucket = buckets_[id];
  BucketTable::State& state = buckets_.state(id);
  if (!may_end_early(bucket)) return;
  if (!state.rejected) state.rejected = state.iteration;
  reject_owner(id, error);
}

std::uint64_t BucketRunner::uses_until(const ProposalKey& key) const {
  const BucketTable::Bucket* const bucket = buckets_.find(bucket_of(key.hash));
  if (bucket == nullptr || bucket->state.rejected || bucket->owner->failed()) return 0;
  const std::uint64_t ended = bucket->state.iteration;
  return key.round < ended ? 0 : key.round - ended + 1;
}

std::string_view BucketRunner::text_of(const ProposalKey& key) const {
  return first_line(buckets_[bucket_of(key.hash)].text);
}

/// Abandons the iteration in flight, if there is one. All ranks do so, because each may have
/// started buckets that others have not.
void BucketRunner::abandon(BucketId id) {
  const BucketTable::Bucket& bucket = buckets_[id];
  BucketTable::State& state = buckets_.state(id);
  if (!bucket.is_eager || !state.running) return;
  state.running = false;
  executor_.abandon(id);
  coordinator_.abandon(id);
  bucket.owner->bucket_abandoned(bucket.index);
}

}  // namespace kolo
