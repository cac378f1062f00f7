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
#include "comm/message/bounced_messages.h"
#include "comm/message/messages.h"
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
#include "runtime/gradients/gradient_set_state.h"
#include "runtime/gradients/gradient_sets.h"
#include "runtime/options/options.h"
#include "runtime/wait/caught.h"

namespace kolo {

/// The clocks of an engine; both must outlive it.
struct EngineClocks {
  const Clock& time_outs;  ///< For timeouts; read at every poll.
  const Clock& steps;      ///< Times steps, so it must be exact.
};

/// Time after which a stall is an error; Duration::max() means never. By default it is less than
/// `operation_timeout` by the time that a stall report takes, because that report says more than
/// the timeout of a blocked wait. Pure.
Duration stall_limit(const Options& options);

/// The role of an engine, for a group or for the whole job, and its optional parts.
struct EngineRole {
  std::string group = {};  ///< The group's name in errors; empty for the job.
  /// Passes control frames to groups; null except in the job's engine. Must outlive the engine.
  ControlDemux* control_demux = nullptr;
  /// Receives the engine's current verb; may be null. Must outlive the engine.
  Pulse* pulse = nullptr;
  /// The device, and the connector of device collectives, of an engine without a `device_context`.
  /// Both may be null and must outlive the engine.
  Device* device = nullptr;
  CommunicatorConnector* connector = nullptr;
};

/// Runs the operations of one rank in one group, from their submission to their completion. `poll`
/// never blocks and never throws. If transports share a process, engines of many ranks can run in
/// one thread, in any order.
///
/// An exception in the engine ends the job on all ranks: every ticket fails with the same error.
///
/// Threads: `submit` and `abort` any; everything else one at a time, the driving thread's (see
/// `ProgressEngine`).
class Engine {
 public:
  /// `device_context` (the device, if there is one), `team` (helper threads, if there are any) and
  /// `user_threads` (see `Coordinator`) must outlive the engine.
  Engine(Transport& transport, const ProcessGrid& grid, EngineClocks clocks, const Options& options,
         const Calibration& calibration, const TransportLimits& limits,
         DeviceContext* device_context = nullptr, ReduceTeam* team = nullptr,
         const std::atomic<int>* user_threads = nullptr, const EngineRole& role = {});

  /// Submits work to the engine. After a failure the work fails at once with the same error.
  void submit(std::shared_ptr<Operation> operation);
  /// Submits a composite call. Precondition: all of its operations have names.
  void submit(std::shared_ptr<CompositeOp> call) { enqueue(std::move(call)); }
  void submit(std::shared_ptr<GradientSetState> group) { enqueue(std::move(group)); }
  /// Submits a bucket of a registered set whose gradients are all ready. The set must live until
  /// its iteration ends.
  void submit(GradientSetState& group, std::size_t bucket) { enqueue(ReadyBucket{&group, bucket}); }
  /// Submits a message. Precondition: peer and buffers are checked; device memory needs a device.
  void submit(std::shared_ptr<Message> message) { enqueue(std::move(message)); }
  /// Joins: this rank is out of data. Precondition: it begins nothing until the ticket is done.
  void submit(std::shared_ptr<JoinTicket> ticket) { enqueue(std::move(ticket)); }
  /// Cancels a receive with this error, unless its message has been received.
  void withdraw(std::shared_ptr<Message> receive, Error error) {
    enqueue(Withdrawal{std::move(receive), std::move(error)});
  }

  /// See `Group::keep_order`. Threads: any.
  void keep_order() { operations_.keep_order(); }
  bool keeps_order() const { return operations_.keeps_order(); }

  /// Whether the device's library sums among the ranks of a node. Threads: any.
  bool native_in_nodes() const { return streams_ && streams_->has_node_group(); }

  /// Ends the job with this error on all ranks. The caller logs it on this rank. Threads: any.
  void abort(Error error) { enqueue(std::move(error)); }

  /// Advances all work as far as possible. Returns whether anything advanced.
  bool poll() noexcept;

  /// Ends the job on all ranks with the current exception, which was thrown in `verb` outside
  /// `poll`. Precondition: called inside a handler.
  void fail_with_exception(EngineVerb verb) noexcept;

  /// Fails this group's engine with `error`, because the job has failed with it on all ranks.
  void fail_with_job(const Error& error) noexcept;
  /// Ends this group's engine together with the job's. Precondition: `fail_with_job` was called.
  void end_with_job() noexcept {
    if (!ended()) end();
  }

  /// Sets a condition for closing: the engine calls `others_are_over`, which may end engines of
  /// groups, until it returns true, and then closes the job.
  void close_after(std::function<bool()> others_are_over) {
    others_are_over_ = std::move(others_are_over);
  }
  /// Sets a function that aborts the device collectives of other engines on this device: it begins
  /// all aborts, and returns whether they are complete. The engine calls it when it aborts its own,
  /// because one abort may wait for another.
  void abort_with(std::function<bool()> others_have_aborted) {
    others_have_aborted_ = std::move(others_have_aborted);
  }
  /// Begins or continues to abort the engine's device collectives. Returns whether this is complete
  /// or has taken too long; the device is then stuck.
  bool abort_device();
  /// Returns whether the engine has failed and only waits for `abort_device`.
  bool awaits_abort() const { return awaits_abort_; }
  /// Returns true after the first kClose, unless the end is refused. This rank then begins no
  /// operation.
  bool is_closing() const { return closing_.has_begun(); }
  /// Returns true if every operation that this rank has begun is over.
  bool has_ended_own() const { return closing_.has_proposed() || ended(); }
  /// Cancels messages in flight. Returns true once none uses memory of the engine or of a caller;
  /// then all calls have failed. Precondition: the engine has ended.
  bool let_go() noexcept;
  bool has_let_go() const { return has_let_go_; }
  /// Fails all calls. Called when the job's engine and transport have ended, so nothing uses their
  /// memory.
  void stop() noexcept;
  /// Returns whether the engine has ended in order, but its tags must not be used again, because
  /// messages to this rank may exist that it has not received.
  bool has_strays() const { return has_strays_; }

  /// Sets a function that planning calls now and then. It may call `answer_pings`, but no other
  /// function of the engine.
  void on_pause(Pause pause) { executor_.on_pause(std::move(pause)); }
  void answer_pings() { coordinator_.answer_pings(); }

  const Options& options() const { return options_; }
  /// Returns the error with which every operation fails from now on; empty without a failure.
  const std::optional<Error>& failure() const { return failure_; }

  /// Returns whether work was submitted that no poll has seen.
  bool has_submissions() const { return !queue_.empty(); }
  /// Returns the ranks that are known to have joined, until all have joined or closed.
  const std::set<int>& joined() const { return coordinator_.joined(); }
  /// Returns the joined ranks that have closed.
  const std::set<int>& closed() const { return coordinator_.closed(); }
  /// Returns true if nothing is submitted, waited for or running. The driving thread may then sleep
  /// without a time limit.
  bool idle() const;
  /// Describes, for a log, the operations for which the engine waits.
  std::string describe_wait() const;
  /// Returns whether a device is at work or shuts down; devices do not wake the engine.
  bool device_busy() const;
  /// Returns whether the engine has ended, with or without an error; it needs no more polls.
  bool ended() const { return ended_.load(std::memory_order_acquire); }

  /// Returns the latest acts of the engine, which other threads may read.
  const LastActivity& acts() const { return coordinator_.acts(); }

  std::uint64_t network_bytes_sent() const {
    return runner_.network_bytes() + messages_.network_bytes();
  }

 private:
  struct ReadyBucket {
    GradientSetState* group;
    std::size_t bucket;
  };
  struct Withdrawal {
    std::shared_ptr<Message> receive;
    Error error;
  };
  using Submission = std::variant<std::shared_ptr<Operation>, std::shared_ptr<GradientSetState>,
                                  ReadyBucket, std::shared_ptr<Message>, Withdrawal,
                                  std::shared_ptr<JoinTicket>, std::shared_ptr<CompositeOp>, Error>;

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
  void take(const std::shared_ptr<GradientSetState>& group) { gradients_.submit(group); }
  void take(const ReadyBucket& ready) { gradients_.submit(*ready.group, ready.bucket); }
  void take(const std::shared_ptr<Message>& message) { bounced_messages_.submit(message); }
  void take(const Withdrawal& which) { bounced_messages_.withdraw(which.receive, which.error); }
  void take(const std::shared_ptr<JoinTicket>& ticket) {
    joining_.submit(ticket);
    attends_ = true;
  }
  void take(const std::shared_ptr<CompositeOp>& call) {
    composite_ops_.submit(call);
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
  std::optional<DeviceStreams> streams_;
  std::optional<CopyStreams> copies_;
  BouncedMessages bounced_messages_;
  Executor executor_;
  BucketTable buckets_;
  const PlanContext context_;
  Activity activity_;
  BucketRunner runner_;
  Operations operations_;
  GradientSets gradients_;
  CompositeOps composite_ops_;
  Joining joining_;
  Closing closing_;
  std::function<bool()> others_are_over_, others_have_aborted_;  // may be empty
  bool attends_ = false;  // whether calls, joining or closing need attention
  ReadyQueue<Submission> queue_;
  std::vector<Submission> drained_;
  std::uint32_t short_moves_ = 0;
  std::vector<int> awaited_peers_;
  std::optional<Error> failure_;  // constant once set; published by closing the queue
  std::optional<TimePoint> device_failed_at_;
  TimePoint linger_until_{};
  std::optional<TimePoint> abort_until_;  // set once the aborts of device collectives have begun
  bool awaits_abort_ = false;
  /// Time until which peers may still write to tensors of abandoned buckets; empty if none does.
  std::optional<TimePoint> revoke_until_;
  bool has_messages_ = false;      // some were in flight at the failure
  bool has_failed_calls_ = false;  // every call submitted before the failure has failed
  bool has_let_go_ = false;
  bool has_strays_ = false;
  std::atomic<bool> ended_{false};
};

}  // namespace kolo
