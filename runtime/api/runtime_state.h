#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/base/mutex.h"
#include "runtime/api/in_flight.h"
#include "runtime/api/kolo.h"
#include "runtime/buckets/bucket_plan.h"
#include "runtime/calls/operation_calls.h"
#include "runtime/engine/connect.h"
#include "runtime/engine/engines.h"
#include "runtime/message/message_calls.h"
#include "runtime/observe/timeline.h"
#include "runtime/wait/progress_engine.h"
#include "runtime/wait/pulse.h"
#include "runtime/wait/user_threads.h"
#include "runtime/wait/watchdog.h"

namespace kolo {

/// This rank's membership in a group, or in the job, as used by the program's threads.
class GroupState {
 public:
  /// Makes the state of the group of all ranks.
  explicit GroupState(RuntimeState& runtime);
  /// Makes the state of a group that the program has created.
  GroupState(RuntimeState& runtime, std::shared_ptr<GroupEngine> group);
  /// Releases a group without waiting for its other members.
  ~GroupState();
  GroupState(const GroupState&) = delete;
  GroupState& operator=(const GroupState&) = delete;

  /// Counts the calling thread as a user of the job until it ends or leaves.
  void enter() const;
  /// Never counts the calling thread, which belongs to the library.
  void exempt_thread() const;
  /// Returns false in a forked process.
  bool is_of_this_process() const;
  /// Throws UsageError while this rank is in `join`, and in a forked process.
  void check_free() const;
  /// Returns whether this rank is in `join`, or has to repeat it.
  bool has_joined() const { return has_joined_.load(std::memory_order_relaxed); }

  int rank() const { return rank_; }
  const ProcessGrid& grid() const { return grid_; }
  const std::vector<int>& ranks_of_job() const { return ranks_of_job_; }
  /// Returns the inputs of plans for buckets in host memory.
  PlanInputs plan_inputs() const;
  const LinkCosts& costs() const;
  const Options& options() const;
  Device* device() const;
  /// See `Engine`.
  bool native_in_nodes() const { return engine_.native_in_nodes(); }
  ProgressEngine& progress_engine();
  const WaitLimit& limit() const { return tickets_->limit; }

  /// Calls `call`, and adds the group's name to the errors that it throws.
  template <typename Call>
  auto within_group(const Call& call) const {
    try {
      return call();
    } catch (const KoloError&) {
      rethrow_in_group();
    }
  }

  // `begin` starts an operation, which goes on in the background. Buffers in device memory are used
  // after the work enqueued on `stream`. Throws UsageError, which names the group.

  Ticket begin(OperationKind kind, std::string_view name, const Tensors& tensors,
               NativeStream stream = {}, int root = 0, const Reduction& reduction = ReduceOp::kSum);
  /// Begins an operation without tensors; `kind` is kBarrier or kClose.
  Ticket begin(OperationKind kind);
  Ticket begin(Message::Kind kind, const Buffers& buffers, int peer, std::uint64_t tag,
               NativeStream stream);
  Ticket begin(std::string_view name, Span<const TableRows> tables, const RowOptions& row_options,
               std::vector<RowSums>&& memory, NativeStream stream);
  /// Begins an operation of the library itself, whose name cannot clash with a user's name.
  Ticket begin_own(OperationKind kind, std::string_view name, const Tensors& tensors);

  /// Returns the set when all ranks have agreed on it: `group`, or the earlier one that this call
  /// repeats.
  std::shared_ptr<GradientSetState> register_group(std::shared_ptr<GradientSetState> group);
  /// Submits `bucket`, which the gradient that was just marked has completed, if there is one.
  void marked(GradientSetState& group,
              const std::optional<GradientIterations::ReadyBucket>& bucket);

  /// Creates a group of ranks of this group. Errors: as `Group::group`.
  std::shared_ptr<GroupState> create(const std::vector<int>& ranks, const GroupOptions& options);

  /// See `Runtime::abort`.
  void abort(std::string_view why);
  std::uint64_t network_bytes_sent() const { return engine_.network_bytes_sent(); }

  /// See `Group::keep_order`.
  void keep_order() { engine_.keep_order(); }
  /// See `Group::join`.
  int join();
  void close();
  bool is_closed() const { return closed_; }

 private:
  [[noreturn]] void rethrow_in_group() const;
  Ticket submit(InFlight::What what, std::uint64_t key);
  std::vector<int> checked_members(const std::vector<int>& ranks,
                                   const GroupOptions& group_options) const;
  std::shared_ptr<GradientSetState> take_late(const GradientSetState& again) KOLO_EXCLUDES(mutex_);
  void bucket_ready(GradientSetState& group, const GradientIterations::ReadyBucket& bucket);
  void check_device(const GradientSetState& group) const;
  std::shared_ptr<const Event> ready_event(MemoryKind memory, NativeStream stream);

  RuntimeState& runtime_;
  const std::shared_ptr<GroupEngine> group_;  // null for the job
  Engine& engine_;
  const ProcessGrid& grid_;
  const int rank_;
  std::atomic<bool> has_joined_ = false;  // written by the thread in `join`
  const std::vector<int> ranks_of_job_;
  /// Shared with tickets, which may outlive the runtime.
  const std::shared_ptr<TicketGroup> tickets_;
  const OperationCalls calls_;
  const MessageCalls messages_;
  Mutex mutex_;
  /// Registrations that have timed out, by name. Peers count each registration once, so a repeated
  /// call continues the first.
  std::map<std::string, std::shared_ptr<GradientSetState>> late_ KOLO_GUARDED_BY(mutex_);
  std::shared_ptr<JoinTicket> join_;  // null unless this rank has joined
  bool closed_ = false;
};

/// Everything that a runtime owns. Members are destroyed in reverse order: the threads first.
class RuntimeState {
 public:
  RuntimeState(Rendezvous& rendezvous, Options options);
  /// Closes the job, or leaves it if an exception destroys the runtime.
  ~RuntimeState();
  RuntimeState(const RuntimeState&) = delete;
  RuntimeState& operator=(const RuntimeState&) = delete;

  /// Returns whether this process has a runtime.
  static bool has_any() { return count_ > 0; }

  /// See `GroupState::enter`.
  void enter() const { threads_.enter(); }
  /// See the functions of `UserThreads`.
  void check_process() const { threads_.check_process(); }
  bool is_of_this_process() const { return threads_.is_of_this_process(); }
  /// See `Runtime::leave_thread`.
  void leave_thread() const { threads_.leave(); }
  /// As `GroupState::exempt_thread`.
  void exempt_thread() const { threads_.exempt(); }
  const UserThreads& threads() const { return threads_; }

  const std::shared_ptr<GroupState>& world() const { return world_; }
  int rank() const { return connection_.transport->rank(); }
  const ProcessGrid& grid() const { return connection_.grid; }
  const LinkCosts& costs() const { return connection_.calibration.costs; }
  const Tuning& tuning() const { return connection_.calibration.tuning; }
  const std::string& network_address() const { return connection_.network.address; }
  const Options& options() const { return options_; }
  const std::shared_ptr<Timeline>& timeline() const { return timeline_; }
  Device* device() const {
    return connection_.device_context ? connection_.device_context->device.get() : nullptr;
  }
  Engine& engine() { return engine_; }
  const std::shared_ptr<ProgressEngine>& progress_engine() { return progress_engine_; }

  /// Creates a group of ranks of `parent` (null: of the job), and waits until all its members have
  /// called.
  std::shared_ptr<GroupEngine> create(const GroupOptions& group_options,
                                      const std::vector<int>& ranks,
                                      const std::shared_ptr<GroupEngine>& parent);
  /// See `Runtime::allocate`.
  std::shared_ptr<std::byte[]> allocate(std::size_t bytes);
  /// See `Runtime::abort`.
  void abort(std::string_view why);

 private:
  Watchdog::Duties watchdog_duties();
  void give_up(const StallJudge::Verdict& verdict);

  const Options options_;
  const std::shared_ptr<Timeline> timeline_;  // shared with gradient sets; null without the option
  const CoarseClock coarse_clock_;
  const SteadyClock steady_clock_;
  const UserThreads threads_;
  Connection connection_;
  /// Number of runtimes of this process. If opening a runtime fails although the process has
  /// another one, the error text says so: perhaps only this rank opens a second runtime.
  static inline std::atomic<int> count_ = 0;
  struct Counted {
    Counted() { ++count_; }
    ~Counted() { --count_; }
    Counted(const Counted&) = delete;
    Counted& operator=(const Counted&) = delete;
  };

  const Counted counted_;
  ReduceTeam team_;
  ControlDemux demux_;
  Pulse pulse_;
  Engine engine_;
  const std::shared_ptr<LocalArena> local_arena_;  // shared with memory that is allocated in it
  Engines engines_;
  const std::shared_ptr<ProgressEngine> progress_engine_;
  Mutex mutex_;
  /// Creations of groups that have timed out, by name and ranks. A repeated call continues the
  /// first.
  std::map<std::string, std::shared_ptr<GroupCreation>> late_creations_ KOLO_GUARDED_BY(mutex_);
  const std::shared_ptr<GroupState> world_;
  std::atomic<bool> has_left_ = false;  // true after `abort`: the destructor must not close the job
  const int exceptions_;
  Watchdog watchdog_;  // outlives thread_, to watch its end
  EngineThread thread_;
};

}  // namespace kolo
