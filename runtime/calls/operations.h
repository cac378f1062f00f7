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

/// A call that runs several operations in stages, each of which may depend on results of earlier
/// stages. The object is the ticket of the whole call.
///
/// Threads: one at a time: the caller's until the call is submitted, then the engine's.
class CompositeOp : public TicketState {
 public:
  /// Operations that run at the same time.
  using Stage = std::vector<std::shared_ptr<Operation>>;

  /// Processes the results of the last stage and returns the next stage, or an empty stage if only
  /// device work is left. Precondition: the last stage has completed without an error.
  virtual Stage next() = 0;
  /// Returns whether the device work is done; the call is then over. Precondition: `next` has
  /// returned an empty stage.
  virtual bool is_settled() const { return true; }
};

/// The single operations of a job, by name. Agrees with other ranks on each new signature, plans a
/// bucket for it, and runs the uses of a name one after another.
///
/// A program may use any number of names. When the bucket table is crowded, each new name starts a
/// vote of all ranks on the oldest name, so that as many names are retired as are added. The oldest
/// name is retired if it is idle on all ranks after equally many uses. No rank begins a use of that
/// name until the vote is decided, which takes one round.
///
/// In a group that keeps one order, pending operations are compared by position instead of by name:
/// if the n-th operations of two ranks differ, they fail as a mismatch. Operations are compared
/// only when they make no progress, so the check costs nothing otherwise.
///
/// Threads: the engine's. Errors: errors of planning, which other ranks may not have.
class Operations {
 public:
  using BeginCall = std::function<void(std::shared_ptr<CompositeOp> call)>;

  /// All arguments must outlive this object. `begin_call` begins a composite call.
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

  /// Handle a decision of all ranks. Return false if the decision concerns no operation.
  bool accept(const Frame& decision);
  bool reject(const ProposalKey& key, const Error& error);

  /// Returns true if no operation is queued or in flight.
  bool is_idle() const;
  /// Works like `is_idle()`, for the name with this hash.
  bool is_idle(std::uint64_t hash) {
    const NamedOpQueue* const queue = find(hash);
    return queue == nullptr || queue->is_idle();
  }
  /// Makes this joined rank run the next operation of the name in `terms` without data. Returns the
  /// reason if that is impossible, else an empty text.
  std::string_view stand_in(const OperationTerms& terms);

  /// Fails every operation, because the job has failed.
  void fail_all(const Error& error) noexcept;

  /// Proposes or starts the head of the queue, as `need()` says.
  void advance(NamedOpQueue& queue);
  /// Notes in the head's ticket that its work is enqueued on the device.
  void enqueued(const NamedOpQueue& queue);

 private:
  using Queues = std::map<std::string, NamedOpQueue>;  // by name
  struct Name {
    std::string text;
    NameSpace space = NameSpace::kUser;
    friend bool operator==(const Name&, const Name&) = default;
  };
  /// An undecided vote on whether to retire `name`, whose queue is held until the decision. Several
  /// votes may be undecided at once.
  struct Retirement {
    std::size_t number;
    Name name;
  };
  struct Nobody : Waitable {
    int waiters() const override { return 0; }
  };

  Queues& queues(NameSpace space) { return space == NameSpace::kUser ? queues_ : own_; }
  NamedOpQueue& queue_of(const Operation& operation);
  /// Returns the queue of the name with this hash; null if there is none.
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
  Queues own_;  // queues of names of the library
  std::map<ProposalKey, NamedOpQueue*> proposed_;
  std::deque<Name> by_age_;                        // names with a bucket, oldest agreement first
  std::map<ProposalKey, Retirement> retirements_;  // undecided votes
  Nobody nobody_;                                  // for votes: no thread waits for them
  /// Null until this joined rank runs an operation in device memory.
  std::optional<StandInMemory> stand_in_memory_;
  std::atomic<bool> keeps_order_{false};
  std::uint64_t places_ = 0;  // operations so far in a group that keeps one order
};

/// The composite calls of one engine that run in the background.
///
/// Threads: the engine's. Errors: errors of `CompositeOp::next`, which other ranks may not have.
class CompositeOps {
 public:
  /// `operations` must outlive this object.
  explicit CompositeOps(Operations& operations) : operations_(operations) {}

  void submit(std::shared_ptr<CompositeOp> call);
  bool is_idle() const { return under_way_.empty(); }
  /// Returns whether a call waits for a device, which must then be polled.
  bool awaits_device() const;
  /// Continues the calls whose last stage is over. Returns whether there was any.
  bool poll();
  /// Fails all calls, because the job has failed.
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
