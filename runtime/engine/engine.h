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

/// The clocks of an engine; both outlive it.
struct EngineClocks {
  const Clock& time_outs;  ///< Read at every poll.
  const Clock& steps;      ///< Times steps, so it must be exact.
};

/// How long a stall lasts before it is an error; the longest duration: for ever. By default it is
/// shorter than the time-out of the blocked waits by the time that it takes to report it, because
/// its report says more than theirs. Pure.
Duration stall_limit(const Options& options);

/// What an engine is for: a group or the whole job.
struct EngineRole {
  std::string group = {};  ///< The group as errors name it; empty: the whole job.
  /// The demux of the job's engine, for the control frames of groups; outlives the engine. May be
  /// null.
  ControlDemux* control_demux = nullptr;
  /// Receives the engine's current verb; outlives the engine. May be null.
  Pulse* pulse = nullptr;
  /// For an engine without a `device_context`: the rank's device, and the connector of its
  /// collectives. Both outlive the engine and may be null.
  Device* device = nullptr;
  CommunicatorConnector* connector = nullptr;
};

/// One rank's path from "ready here" to "summed everywhere". `poll` never blocks and never throws.
/// If transports share a process, engines of many ranks can run in one thread, in any order.
///
/// An exception in the engine ends the job on all ranks: every ticket fails with the same error.
///
/// Threads: `submit` and `abort` any; everything else one at a time, the driving thread's (see
/// `ProgressEngine`).
class Engine {
 public:
  /// `device_context` (if this rank has a device), `team` (if threads help it) and `user_threads`
  /// (see `Coordinator`) outlive the engine.
  Engine(Transport& transport, const ProcessGrid& grid, EngineClocks clocks, const Options& options,
         const Calibration& calibration, const TransportLimits& limits,
         DeviceContext* device_context = nullptr, ReduceTeam* team = nullptr,
         const std::atomic<int>* user_threads = nullptr, const EngineRole& role = {});

  /// Hands work to the engine. After a failure the work fails at once with the same error.
  void submit(std::shared_ptr<Operation> operation);
  /// Precondition: all of its operations have names.
  void submit(std::shared_ptr<CompositeOp> call) { enqueue(std::move(call)); }
  void submit(std::shared_ptr<GradientSetState> group) { enqueue(std::move(group)); }
  /// All gradients of this bucket of a registered group are ready. The group lives at least until
  /// its iteration ends.
  void submit(GradientSetState& group, std::size_t bucket) { enqueue(ReadyBucket{&group, bucket}); }
  /// Precondition: peer and buffers are checked; buffers in device memory only with a device.
  void submit(std::shared_ptr<Message> message) { enqueue(std::move(message)); }
  /// This rank has run out of data. Precondition: it begins nothing else until the ticket is done.
  void submit(std::shared_ptr<JoinTicket> ticket) { enqueue(std::move(ticket)); }
  /// Cancels a receive with this error, unless its message has come.
  void withdraw(std::shared_ptr<Message> receive, Error error) {
    enqueue(Withdrawal{std::move(receive), std::move(error)});
  }

  /// As `Group::keep_order`. Threads: any.
  void keep_order() { operations_.keep_order(); }
  bool keeps_order() const { return operations_.keeps_order(); }

  /// Ends the job with this error on all ranks. The caller reports it on this rank. Threads: any.
  void abort(Error error) { enqueue(std::move(error)); }

  /// Advances all work as far as possible. Returns whether anything advanced.
  bool poll() noexcept;

  /// Ends the job on all ranks with the current exception, which was thrown in `verb` outside
  /// `poll`. Precondition: called inside a handler.
  void fail_with_exception(EngineVerb verb) noexcept;

  /// The job has failed with `error` on all ranks, and so does this group's engine.
  void fail_with_job(const Error& error) noexcept;
  /// The job's engine has ended, and so does this group's. Precondition: `fail_with_job` was
  /// called.
  void end_with_job() noexcept;

  /// This rank closes the job once `others_are_over()` returns true. The engine polls that
  /// function, which may end other engines.
  void close_after(std::function<bool()> others_are_over) {
    others_are_over_ = std::move(others_are_over);
  }
  /// After the first kClose this rank begins nothing more, unless the end is refused.
  bool is_closing() const { return closing_.has_begun(); }
  /// Every operation that this rank has begun is over.
  bool has_ended_own() const { return closing_.has_proposed() || ended(); }
  /// The engine has ended: no message in flight touches memory of the engine or of a caller.
  bool has_let_go() const { return has_let_go_; }

  /// The job's engine and its transport have ended: nothing of this group uses memory any more.
  void stop_with_job() noexcept { gradients_.stop_all(); }

  /// Planning calls `pause` now and then; it may call `answer_pings`, and nothing else.
  void on_pause(Pause pause) { executor_.on_pause(std::move(pause)); }
  void answer_pings() { coordinator_.answer_pings(); }

  /// The error with which every operation fails from now on; empty if none.
  const std::optional<Error>& failure() const { return failure_; }

  /// Work was submitted that no poll has seen.
  bool has_submissions() const { return !queue_.empty(); }
  /// Ranks that are known to have joined, until all have joined or closed.
  const std::set<int>& joined() const { return coordinator_.joined(); }
  /// The joined ranks that have closed.
  const std::set<int>& closed() const { return coordinator_.closed(); }
  /// Nothing is submitted, waited for or running: the thread may park without a time limit.
  bool idle() const;
  /// Describes for a log what the engine waits for.
  std::string describe_wait() const;
  /// A device is at work or ends; devices do not wake the engine, so it must be polled soon.
  bool device_busy() const;
  /// The job has ended, with or without an error: nothing is left to poll.
  bool ended() const { return ended_.load(std::memory_order_acquire); }

  /// The latest acts, for other threads to read.
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
  std::function<bool()> others_are_over_;  // empty: none
  bool attends_ = false;                   // whether calls, joining or closing need attention
  ReadyQueue<Submission> queue_;
  std::vector<Submission> drained_;
  std::uint32_t short_moves_ = 0;
  std::vector<int> awaited_peers_;
  std::optional<Error> failure_;  // constant once set; published by closing the queue
  std::optional<TimePoint> device_failed_at_;
  TimePoint linger_until_{};
  /// Until then peers may write to tensors of abandoned buckets.
  std::optional<TimePoint> revoke_until_;
  bool has_messages_ = false;      // were in flight when it failed
  bool has_failed_calls_ = false;  // every call submitted before the failure has failed
  bool has_let_go_ = false;
  std::atomic<bool> ended_{false};
};

}  // namespace kolo
