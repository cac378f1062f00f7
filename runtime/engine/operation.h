#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "comm/base/buffer_view.h"
#include "comm/coordinator/frame.h"
#include "fusion/segment_packer.h"
#include "runtime/engine/bucket_table.h"
#include "runtime/engine/ticket_state.h"

namespace kolo {

enum class OperationKind : std::uint8_t { kAllReduce, kBroadcast, kBarrier, kClose };

/// One collective call on one buffer, as a user's thread submits it.
struct Operation {
  OperationKind kind = OperationKind::kBarrier;
  std::string name = {};
  BufferView buffer = {};
  /// Out of place: the contribution, of the buffer's size; null where `buffer` holds it.
  const void* input = nullptr;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
  /// Device memory: behind what the caller's stream does to the buffer; null when that is done.
  std::shared_ptr<const Event> ready = {};
  std::shared_ptr<TicketState> ticket = std::make_shared<TicketState>();

  /// What all ranks must submit alike: "'x': all_reduce float32 [10] sum".
  std::string signature() const;
};

/// The signature without the name, for comparing.
struct OperationShape {
  OperationKind kind = OperationKind::kBarrier;
  std::size_t count = 0;
  DType dtype = DType::kFloat32;
  MemoryKind memory = MemoryKind::kHost;
  bool out_of_place = false;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;

  static OperationShape of(const Operation& operation);
  friend bool operator==(const OperationShape&, const OperationShape&) = default;
};

/// All uses of one operation name: queued in order, negotiated when the signature is new, run one
/// at a time in the bucket that was made for it.
///
///   unknown --propose--> proposed --accept--> agreed --arrive, start, run--> agreed
///      ^---- reject -------'                     '--- another signature at the head --> unknown
///
/// Threads: the engine's.
class OperationTopic final : public BucketOwner {
 public:
  /// What the head of the queue needs next.
  enum class Need : std::uint8_t { kNothing, kProposal, kArrival };

  void push(std::shared_ptr<Operation> operation) { queue_.push_back(std::move(operation)); }
  Need need() const;
  const Operation& head() const { return *queue_.front(); }

  /// Nothing of it is queued or under way.
  bool is_idle() const { return queue_.empty() && !proposal_ && !arrived_; }
  /// While it is held, its head needs nothing.
  void hold(bool held) { is_held_ = held; }

  void proposed(const Topic& topic);
  const std::optional<Topic>& proposal() const { return proposal_; }
  /// The proposal was accepted; the head's signature now has this bucket (none for kClose).
  void accepted(std::optional<BucketId> bucket, std::shared_ptr<Rebindable> packer);
  /// The proposal was rejected: the head fails.
  void rejected(const Error& error) noexcept;
  /// The head has arrived; its buffer is bound to the bucket until it finishes.
  void arrived();
  /// Completes the head.
  void complete_head() noexcept { take_head()->ticket->complete(); }
  /// Fails everything.
  void fail_all(const Error& error) noexcept;

  /// The bucket of the last accepted signature.
  std::optional<BucketId> bucket() const { return bucket_; }
  /// The same, which from now on is no longer its own.
  std::optional<BucketId> take_bucket() { return std::exchange(bucket_, std::nullopt); }

  void bucket_enqueued(std::size_t) override {}
  void bucket_finished(std::size_t index) override;
  /// The bucket is not used again; the head fails if it is in it.
  void bucket_failed(const Error& error) noexcept override;
  /// With those whose use is queued behind the head.
  int waiters() const override;
  OperationTopic* as_operation() override { return this; }

 private:
  std::shared_ptr<Operation> take_head() noexcept;

  std::deque<std::shared_ptr<Operation>> queue_;
  OperationShape shape_;           // that the bucket was made for
  std::optional<Topic> proposal_;  // undecided
  std::optional<BucketId> bucket_;
  std::shared_ptr<Rebindable> packer_;
  bool is_held_ = false;
  bool is_rejected_ = false;  // the bucket
  bool arrived_ = false;      // the head, in the bucket
};

}  // namespace kolo
