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
#include "runtime/calls/operation.h"
#include "runtime/calls/operation_topic.h"
#include "runtime/calls/stand_in.h"

namespace kolo {

/// A call that several operations make up, of which later ones depend on the results of earlier
/// ones. Its own ticket is for calls that run in the background.
///
/// Threads: one at a time; that of a blocking call, or the engine's.
class CallSequence : public TicketState {
 public:
  /// Operations that run at the same time.
  using Stage = std::vector<std::shared_ptr<Operation>>;

  /// Takes up the results of the last stage, and gives the next one; none when nothing is left but
  /// work of a device. Before: all of the last stage has ended well.
  virtual Stage next() = 0;
  /// Whether that work is done, too, which ends the call. Before: there is no next stage.
  virtual bool is_settled() const { return true; }
};

/// The single operations of a job, by name: agrees with other ranks on each new signature, plans a
/// bucket for it, and runs the uses of a name one after another.
///
/// Programs may make up names for ever. When there is little room left, all ranks vote at each
/// agreement on a new name whether the oldest one goes: it does if it is idle everywhere after
/// equally many uses. Until that is decided, which takes one trip, it is not begun anywhere. Names
/// that are new at the same time begin as many votes, so that no more come than go.
///
/// In a group that keeps one order, ranks whose n-th operations differ disagree, as they do about
/// uses of one name: the number stands for the name when pending operations are compared, which is
/// done when they make no progress. An operation that gets on costs nothing more.
///
/// Threads: the engine's. Errors: those of the plan that may be this rank's alone.
class Operations {
 public:
  using BeginCall = std::function<void(std::shared_ptr<CallSequence> call)>;

  /// Everything outlives it. `begin_call` begins a call that several operations make up.
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

  /// Takes a decision. Returns false if it is about none of these.
  bool accept(const Frame& decision);
  bool reject(const Topic& topic, const Error& error);

  /// Nothing is queued or under way.
  bool is_idle() const;
  /// The same of the name with this key.
  bool is_idle(std::uint64_t key) {
    const OperationTopic* const topic = find(key);
    return topic == nullptr || topic->is_idle();
  }
  /// This rank has joined, and takes part in the next use of a name on these terms. Returns the
  /// obstacle if it cannot; empty otherwise.
  std::string_view stand_in(const OperationTerms& terms);

  /// The job has failed: so does every operation.
  void fail_all(const Error& error) noexcept;

  /// Sees to what the head of the queue needs.
  void advance(OperationTopic& topic);

 private:
  using Topics = std::map<std::string, OperationTopic>;  // by name
  struct Name {
    std::string text;
    NameSpace space = NameSpace::kUser;
    friend bool operator==(const Name&, const Name&) = default;
  };
  /// A vote, one of several at a time, on whether this name, which is held, goes.
  struct Retirement {
    std::size_t number;
    Name name;
  };
  struct Nobody : Waited {
    int waiters() const override { return 0; }
  };

  Topics& topics(NameSpace space) { return space == NameSpace::kUser ? topics_ : own_; }
  OperationTopic& topic_of(const Operation& operation);
  /// That of a name with this key; null if none is known.
  OperationTopic* find(std::uint64_t key);
  std::shared_ptr<CallSequence> without_rows(const OperationTerms& terms) const;
  void plan(OperationTopic& topic, bool in_arenas);
  void vote_on_oldest();
  void retire(const Name& name, const Frame& decision);

  Coordinator& coordinator_;
  const PlanContext& context_;
  BucketRunner& runner_;
  Activity& activity_;
  const BeginCall begin_call_;
  Topics topics_;
  Topics own_;  // whose names no user gives
  std::map<Topic, OperationTopic*> proposed_;
  std::deque<Name> by_age_;                       // that have a bucket, oldest agreement first
  std::map<Topic, Retirement> retirements_;       // under way
  Nobody nobody_;                                 // waits for a retirement
  std::optional<StandInMemory> stand_in_memory_;  // once others work in device memory without it
  std::atomic<bool> keeps_order_{false};
  std::uint64_t places_ = 0;  // given so far to operations that keep one order
};

/// The sequences of one engine that run in the background.
///
/// Threads: the engine's. Errors: what `CallSequence::next` throws, which may be this rank's alone.
class CallSequences {
 public:
  /// `operations` outlives it.
  explicit CallSequences(Operations& operations) : operations_(operations) {}

  void submit(std::shared_ptr<CallSequence> call);
  bool is_idle() const { return under_way_.empty(); }
  /// One waits for a device, which must be polled for.
  bool awaits_device() const;
  /// Moves on the sequences whose last stage is over. Returns whether there was any.
  bool poll();
  /// The job has failed.
  void fail_all(const Error& error) noexcept;

 private:
  struct UnderWay {
    std::shared_ptr<CallSequence> call;  // null when it is over
    CallSequence::Stage stage;           // empty after the last one
  };

  static bool is_due(const UnderWay& each);
  void go_on(UnderWay& each);
  void begin_stage(UnderWay& each);

  Operations& operations_;
  std::vector<UnderWay> under_way_;  // in the order in which they came
};

}  // namespace kolo
