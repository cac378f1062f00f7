#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "comm/base/clock.h"
#include "comm/coordinator/coordinator.h"
#include "comm/message/messages.h"
#include "comm/message/mirrored_messages.h"
#include "comm/schedule/executor.h"
#include "comm/transport/transport.h"
#include "fusion/ready_queue.h"
#include "runtime/buckets/bucket_runner.h"
#include "runtime/buckets/bucket_table.h"
#include "runtime/buckets/plan_context.h"
#include "runtime/calibration/calibration.h"
#include "runtime/calls/operation.h"
#include "runtime/calls/operations.h"
#include "runtime/engine/closing.h"
#include "runtime/engine/joining.h"
#include "runtime/gradients/gradient_group.h"
#include "runtime/gradients/gradient_sets.h"
#include "runtime/options/options.h"
#include "runtime/wait/caught.h"

namespace kolo {

/// Where an engine's times come from; both outlive it.
struct EngineClocks {
  const Clock& time_outs;  ///< Read at every poll.
  const Clock& steps;      ///< Tells how long steps take, so it must be exact.
};

/// After how long a stall is an error; the longest duration: never. By default as long before the
/// time-out of the waits it blocks as it takes to tell them, because it can tell more than they.
/// Pure.
Duration stall_limit(const Options& options);

/// What an engine serves.
struct EngineRole {
  std::string group = {};  ///< The group as errors name it; empty: the whole job.
  /// Of the job's engine, for the control frames of groups; outlives it. Null: there are none.
  ControlSwitch* control_switch = nullptr;
  /// Shows the verb that the engine is in; outlives it. Null: nobody looks.
  Pulse* pulse = nullptr;
  /// The device of the rank, for an engine without a `plane`, and what connects its collectives;
  /// both outlive it. Null: it has none.
  Device* device = nullptr;
  GroupConnector* connector = nullptr;
};

/// One rank's path from "ready here" to "summed everywhere". `poll` never blocks and never throws;
/// given transports that share a process, engines of many ranks run in one thread, in any order.
///
/// An exception on the way ends the job with one error on all ranks: every ticket fails with it.
///
/// Threads: `submit` and `abort` any; everything else one at a time, the driver's (see `Driver`).
class Engine {
 public:
  /// `plane`, if this rank has a device, `team`, if threads help it, and `user_threads` (see
  /// `Coordinator`) outlive the engine.
  Engine(Transport& transport, const ProcessGrid& grid, EngineClocks clocks, const Options& options,
         const Calibration& calibration, const TransportLimits& limits,
         DevicePlane* plane = nullptr, ReduceTeam* team = nullptr,
         const std::atomic<int>* user_threads = nullptr, const EngineRole& role = {});

  /// Hands work to the engine. After a failure the work fails at once with the same error.
  void submit(std::shared_ptr<Operation> operation);
  /// All of its operations have names.
  void submit(std::shared_ptr<CallSequence> call) { enqueue(std::move(call)); }
  void submit(std::shared_ptr<GradientGroup> group) { enqueue(std::move(group)); }
  /// The gradients of one bucket of a registered group are all computed. The group lives at least
  /// until its iteration ends.
  void submit(GradientGroup& group, std::size_t bucket) { enqueue(ReadyBucket{&group, bucket}); }
  /// Before: its peer and its buffer are checked; in device memory only with a device.
  void submit(std::shared_ptr<Message> message) { enqueue(std::move(message)); }
  /// This rank has run out of data. Before: it does nothing else until the ticket is done.
  void submit(std::shared_ptr<JoinTicket> ticket) { enqueue(std::move(ticket)); }
  /// Gives a receive up with this error, unless its message has come.
  void withdraw(std::shared_ptr<Message> receive, Error error) {
    enqueue(Withdrawal{std::move(receive), std::move(error)});
  }

  /// As `Group::keep_order`. Threads: any.
  void keep_order() { operations_.keep_order(); }
  bool keeps_order() const { return operations_.keeps_order(); }

  /// Ends the job with this error on all ranks; whoever calls it reports it here. Threads: any.
  void abort(Error error) { enqueue(std::move(error)); }

  /// Moves everything on as far as it goes now. Returns whether anything moved.
  bool poll() noexcept;

  /// Ends the job on all ranks with the exception that is being handled, which came up in `verb`
  /// outside `poll`. Before: inside a handler.
  void fail_with_exception(EngineVerb verb) noexcept;

  /// The job fails with `error` on all ranks, and so does this group's engine.
  void fail_with_job(const Error& error) noexcept;
  /// The job's engine has ended, and this group's does. Before: `fail_with_job`.
  void end_with_job() noexcept;

  /// This rank closes the job once `others_are_over()`, which is asked again and again then, and
  /// may have others end.
  void close_after(std::function<bool()> others_are_over) {
    others_are_over_ = std::move(others_are_over);
  }
  /// From the first kClose on this rank begins nothing more, unless its end is refused.
  bool is_closing() const { return closing_.has_begun(); }
  /// Everything that this rank has begun is over.
  bool has_ended_own() const { return closing_.has_proposed() || ended(); }
  /// After the end: no message in flight touches memory of the engine or of a caller.
  bool has_let_go() const { return has_let_go_; }

  /// The job's engine has ended, and its transport: nothing of this group uses memory any more.
  void stop_with_job() noexcept { gradients_.stop_all(); }

  /// In the middle of planning, now and then: `pause` may call `answer_pings`, and nothing else.
  void on_pause(Pause pause) { executor_.on_pause(std::move(pause)); }
  void answer_pings() { coordinator_.answer_pings(); }

  /// Why everything fails from now on, if it does.
  const std::optional<Error>& failure() const { return failure_; }

  /// Something was submitted that no poll has seen.
  bool has_submissions() const { return !queue_.empty(); }
  /// The ranks that are known to have joined, until all have, or closed.
  const std::set<int>& joined() const { return coordinator_.joined(); }
  /// Those of them that have closed.
  const std::set<int>& closed() const { return coordinator_.closed(); }
  /// Nothing is submitted, waited for or running: the thread may park without a time limit.
  bool idle() const;
  /// What the engine waits for, for people.
  std::string describe_wait() const;
  /// A device, which rings nobody, is at work or ends: polling is due soon.
  bool device_busy() const;
  /// The job has ended, orderly or not: nothing is left to poll.
  bool ended() const { return ended_.load(std::memory_order_acquire); }

  /// What it did last, for a look from another thread.
  const LastActNote& acts() const { return coordinator_.acts(); }

  std::uint64_t network_bytes_sent() const {
    return runner_.network_bytes() + messages_.network_bytes();
  }

 private:
  struct ReadyBucket {
    GradientGroup* group;
    std::size_t bucket;
  };
  struct Withdrawal {
    std::shared_ptr<Message> receive;
    Error error;
  };
  using Submission =
      std::variant<std::shared_ptr<Operation>, std::shared_ptr<GradientGroup>, ReadyBucket,
                   std::shared_ptr<Message>, Withdrawal, std::shared_ptr<JoinTicket>,
                   std::shared_ptr<CallSequence>, Error>;

  void enqueue(Submission submission);
  bool move();
  bool absorb();
  bool receive();
  bool agree();
  bool attend();
  bool move_closing();
  bool is_at_work() const;
  bool start();
  bool run();
  void complete();
  bool limit_revoking();
  void take(const std::shared_ptr<Operation>& operation);
  void take(const std::shared_ptr<GradientGroup>& group) { gradients_.submit(group); }
  void take(const ReadyBucket& ready) { gradients_.submit(*ready.group, ready.bucket); }
  void take(const std::shared_ptr<Message>& message) { mirrored_messages_.submit(message); }
  void take(const Withdrawal& which) { mirrored_messages_.withdraw(which.receive, which.error); }
  void take(const std::shared_ptr<JoinTicket>& ticket) {
    joining_.submit(ticket);
    attends_ = true;
  }
  void take(const std::shared_ptr<CallSequence>& call) {
    sequences_.submit(call);
    attends_ = true;
  }
  void take(const Error& error) { coordinator_.leave(error); }
  void apply(const Frame& decision);
  void close();
  static bool begins_something(const Submission& submission);
  Error closed_error() const;
  static void refuse(const Submission& submission, const Error& error) noexcept;
  void fail_device(const Error& error);
  void fail_all(const Error& error) noexcept;
  void fail_calls() noexcept;
  bool linger();
  void end() noexcept;

  Transport& transport_;
  ProcessGrid grid_;
  const EngineClocks clocks_;
  const Options options_;
  const std::string group_;  // as `EngineRole::group`
  const Calibration calibration_;
  Messages messages_;
  Coordinator coordinator_;
  std::optional<DeviceLane> lane_;
  std::optional<CopyLane> copies_;
  MirroredMessages mirrored_messages_;
  Executor executor_;
  BucketTable buckets_;
  const PlanContext context_;
  Activity activity_;
  BucketRunner runner_;
  Operations operations_;
  GradientSets gradients_;
  CallSequences sequences_;
  Joining joining_;
  Closing closing_;
  std::function<bool()> others_are_over_;  // empty: there are none
  bool attends_ = false;                   // to one of these three
  ReadyQueue<Submission> queue_;
  std::vector<Submission> drained_;
  std::uint32_t short_moves_ = 0;
  std::vector<int> awaited_peers_;
  std::optional<Error> failure_;  // constant once set; published by closing the queue
  std::optional<TimePoint> device_failed_at_;
  TimePoint linger_until_{};
  std::optional<TimePoint> revoke_until_;  // peers write to tensors of what was given up
  bool has_messages_ = false;              // in flight, when it failed
  bool has_failed_calls_ = false;          // all that had been submitted by then
  bool has_let_go_ = false;
  std::atomic<bool> ended_{false};
};

}  // namespace kolo
