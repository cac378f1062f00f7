#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/coordinator/frame.h"
#include "runtime/buckets/bucket_table.h"
#include "runtime/calls/operation.h"
#include "runtime/calls/operation_plan.h"
#include "runtime/calls/stand_in.h"

namespace kolo {

class Operations;

/// The queue of all uses of one operation name. A use with a new signature first needs an agreement
/// of all ranks. Uses run one at a time, in order, in the bucket of the name.
///
///   unknown --propose--> proposed --accept--> agreed --mark_ready, start, run--> agreed
///      ^---- reject -------'                     '--- another signature at the head --> unknown
///
/// Threads: the engine's.
class NamedOpQueue final : public BucketOwner {
 public:
  /// `all` must outlive the queue; it begins the next use when one is over.
  explicit NamedOpQueue(Operations& all) : all_(all) {}

  /// The next step for the operation at the head of the queue.
  enum class Need : std::uint8_t { kNothing, kProposal, kArrival };

  void push(std::shared_ptr<Operation> operation) { queue_.push_back(std::move(operation)); }
  Need need() const;
  const Operation& head() const { return *queue_.front(); }

  /// Returns true if no use is queued or in flight.
  bool is_idle() const { return queue_.empty() && !proposal_ && !arrived_; }
  /// While `held` is true, the queue does not begin its next use.
  void hold(bool held) { is_held_ = held; }

  void proposed(const ProposalKey& key);
  const std::optional<ProposalKey>& proposal() const { return proposal_; }
  /// Records that all ranks accepted the proposal; `bucket` runs uses with the head's signature.
  void accepted(BucketId bucket, BufferBinding tensors);
  /// Fails the head with `error`, because its proposal was rejected.
  void rejected(const Error& error) noexcept;
  /// Returns whether the bucket is in device memory, like the head's buffer.
  bool has_device_bucket() const {
    return head().memory == MemoryKind::kDevice && !tensors_.bounce_buffer();
  }
  /// Marks the bucket as rejected, because a proposal of this name was rejected. The next use then
  /// makes a proposal, so that ranks that have not yet proposed get the error, too.
  void give_up_bucket() { is_rejected_ = bucket_.has_value(); }
  /// Binds the buffers of the operation at the head to the bucket until it finishes.
  void arrived();
  /// Completes the operation at the head.
  void complete_head() noexcept { take_head()->ticket->complete(); }
  /// Fails all uses.
  void fail_all(const Error& error) noexcept;

  /// The bucket of the last accepted signature.
  std::optional<BucketId> bucket() const { return bucket_; }
  /// Releases ownership of the bucket.
  std::optional<BucketId> take_bucket() { return std::exchange(bucket_, std::nullopt); }

  void bucket_enqueued(std::size_t index) override;
  void bucket_finished(std::size_t index) override;
  std::string_view stand_in(std::uint64_t uses) override;
  bool has_queued_uses() const override { return !queue_.empty(); }
  /// Stops using the bucket, and fails the operation at the head if it runs in the bucket.
  void bucket_rejected(const Error& error) override;
  std::vector<BucketId> buckets_rejected_with(BucketId id) const override { return {id}; }
  /// Returns the number of threads that wait for any queued use, not only for the head.
  int waiters() const override;
  bool is_watched() const override;
  /// The terms of the head of the queue.
  std::vector<std::byte> terms() const override;

 private:
  std::shared_ptr<Operation> take_head() noexcept;

  Operations& all_;
  std::deque<std::shared_ptr<Operation>> queue_;
  OperationTerms made_for_;              // terms of uses that the bucket can run
  std::optional<ProposalKey> proposal_;  // null unless a proposal is undecided
  std::optional<BucketId> bucket_;
  BufferBinding tensors_;
  bool is_held_ = false;
  bool is_rejected_ = false;  // the bucket is rejected
  bool arrived_ = false;      // the head is in the bucket
};

}  // namespace kolo
