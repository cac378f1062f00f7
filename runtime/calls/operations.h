#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/coordinator/coordinator.h"
#include "runtime/buckets/bucket_runner.h"
#include "runtime/buckets/plan_context.h"
#include "runtime/buckets/ticket_state.h"
#include "runtime/calls/named_op_queue.h"
#include "runtime/calls/operation.h"
#include "runtime/calls/stand_in.h"

namespace kolo {

/// A call that consists of several operations, some of which depend on the results of earlier ones.
/// Its own ticket is for calls that run in the background.
///
/// Threads: one at a time: the thread of a blocking call, or the engine's.
class CompositeOp : public TicketState {
 public:
  /// Operations that run at the same time.
  using Stage = std::vector<std::shared_ptr<Operation>>;

  /// Processes the results of the last stage and returns the next one; an empty one if only work of
  /// a device is left. Precondition: the last stage has completed without an error.
  virtual Stage next() = 0;
  /// Whether the work of the device is done, which ends the call. Precondition: `next` has returned
  /// an empty stage.
  virtual bool is_settled() const { return true; }
};

/// The single operations of a job, by name. Agrees with other ranks on each new signature, plans a
/// bucket for it, and runs the uses of a name one after another.
///
/// A program may invent names without end. When little space is left, all ranks vote at each
/// agreement on a new name whether to retire the oldest one: it is retired if it is idle everywhere
/// after equally many uses. Until the vote is decided, which takes one round, no rank begins it.
/// Each of several new names starts a vote, so that no more names are added than retired.
///
/// In a group that keeps one order, the ranks disagree if their n-th operations differ, as they do
/// about uses of one name: the number takes the place of the name when pending operations are
/// compared. They are compared only when they make no progress, so progress costs nothing more.
///
/// Threads: the engine's. Errors: errors of planning that may be this rank's alone.
class Operations {
 public:
  using BeginCall = std::function<void(std::shared_ptr<CompositeOp> call)>;

  /// All arguments outlive it. `begin_call` begins a call that consists of several operations.
  Operations(Coordinator& coordinator, const PlanContext& context, BucketRunner& runner,
             Activity& activity, BeginCall begin_call)
      : coordinator_(coordinator),
        context_(context),
        runner_(runner),
        activity_(activity),
        begin_call_(std::move(begin_call)) {}

  void submit(const std::shared_ptr<Operation>& operation);
  /// See `Group::keep_order`. Threads: any.
  void keep_order() { keeps_order_.store(true, std::memory_order_relaxed); }
  bool keeps_order() const { return keeps_order_.load(std::memory_order_relaxed); }

  /// Handles a decision. Returns false if it does not concern operations.
  bool accept(const Frame& decision);
  bool reject(const ProposalKey& key, const Error& error);

  /// No use is queued or in flight.
  bool is_idle() const;
  /// As `is_idle()`, for the name with this hash.
  bool is_idle(std::uint64_t hash) {
    const NamedOpQueue* const queue = find(hash);
    return queue == nullptr || queue->is_idle();
  }
  /// This rank has joined, and takes part in the next use of a name with these terms. Returns the
  /// obstacle if it cannot; empty otherwise.
  std::string_view stand_in(const OperationTerms& terms);

  /// The job has failed, and with it every operation.
  void fail_all(const Error& error) noexcept;

  /// Does what the head of the queue needs.
  void advance(NamedOpQueue& queue);

 private:
  using Queues = std::map<std::string, NamedOpQueue>;  // by name
  struct Name {
    std::string text;
    NameSpace space = NameSpace::kUser;
    friend bool operator==(const Name&, const Name&) = default;
  };
  /// A vote on whether to retire this name, which is held meanwhile. Several votes may be open.
  struct Retirement {
    std::size_t number;
    Name name;
  };
  struct Nobody : Waitable {
    int waiters() const override { return 0; }
  };

  Queues& queues(NameSpace space) { return space == NameSpace::kUser ? queues_ : own_; }
  NamedOpQueue& queue_of(const Operation& operation);
  /// The queue of the name with this hash; null if there is none.
  NamedOpQueue* find(std::uint64_t hash);
  std::shared_ptr<CompositeOp> without_rows(const OperationTerms& terms) const;
  void plan(NamedOpQueue& queue, bool in_arenas);
  void vote_on_oldest();
  void retire(const Name& name, const Frame& decision);

  Coordinator& coordinator_;
  const PlanContext& context_;
  BucketRunner& runner_;
  Activity& activity_;
  const BeginCall begin_call_;
  Queues queues_;
  Queues own_;  // with names of the library
  std::map<ProposalKey, NamedOpQueue*> proposed_;
  std::deque<Name> by_age_;                        // names with a bucket, oldest agreement first
  std::map<ProposalKey, Retirement> retirements_;  // undecided votes
  Nobody nobody_;                                  // waits for a retirement
  /// Once another rank's operation in device memory needs it.
  std::optional<StandInMemory> stand_in_memory_;
  std::atomic<bool> keeps_order_{false};
  std::uint64_t places_ = 0;  // numbers given so far in a group that keeps one order
};

/// The composite calls of one engine that run in the background.
///
/// Threads: the engine's. Errors: those of `CompositeOp::next`, which may be this rank's alone.
class CompositeOps {
 public:
  /// `operations` outlives it.
  explicit CompositeOps(Operations& operations) : operations_(operations) {}

  void submit(std::shared_ptr<CompositeOp> call);
  bool is_idle() const { return under_way_.empty(); }
  /// Whether a call waits for a device, which must then be polled.
  bool awaits_device() const;
  /// Continues the calls whose last stage is over. Returns whether there was any.
  bool poll();
  /// The job has failed.
  void fail_all(const Error& error) noexcept;

 private:
  struct UnderWay {
    std::shared_ptr<CompositeOp> call;  // null when it is over
    CompositeOp::Stage stage;           // empty after the last one
  };

  static bool is_due(const UnderWay& each);
  void go_on(UnderWay& each);
  void begin_stage(UnderWay& each);

  Operations& operations_;
  std::vector<UnderWay> under_way_;  // in the order of their calls
};

}  // namespace kolo
