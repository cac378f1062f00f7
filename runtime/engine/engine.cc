#include "runtime/engine/engine.h"

#include <set>
#include <utility>

#include "comm/base/log.h"

namespace kolo {
namespace {

/// Time for which the engine keeps polling after a failure, so that peers get the error.
constexpr Duration kLinger = std::chrono::milliseconds(300);
/// Time for which the engine waits for the cause after a device has noticed a lost peer; then it
/// reports the loss itself.
constexpr Duration kCauseWithin = std::chrono::milliseconds(500);
/// Time in which peers must finish the write to this rank's memory that they have begun, even if
/// other processes use their cores.
constexpr Duration kRevokeLimit = std::chrono::seconds(1);
/// One of this many moves always polls the transport, even if submitted work has already advanced.
constexpr std::uint32_t kShortMoves = 8;
/// Time in which the device's communicators must shut down at an orderly end.
constexpr Duration kFinalizeWithin = std::chrono::seconds(5);
/// Time in which the device's collectives must end when they are aborted.
constexpr Duration kAbortWithin = std::chrono::seconds(5);

CoordinatorOptions coordinator_options(const Options& options, const TransportLimits& limits,
                                       const EngineRole& role) {
  return {.mismatch_after = saturated(options.mismatch_after),
          .peer_timeout = saturated(options.peer_timeout),
          .warn_after =
              options.stall_warn.count() == 0 ? Duration::max() : saturated(options.stall_warn),
          .stall_after = stall_limit(options),
          .buckets = limits.buckets,
          .group = role.group};
}

std::optional<DeviceAccess> device_access(const DeviceContext* device_context,
                                          const EngineRole& role) {
  if (device_context != nullptr) return DeviceAccess::of(*device_context);
  if (role.device == nullptr) return std::nullopt;
  return DeviceAccess{.device = *role.device, .connector = role.connector};
}

std::optional<DeviceStreams> device_streams(Transport& transport, const ProcessGrid& grid,
                                            const std::optional<DeviceAccess>& access) {
  return access ? std::make_optional<DeviceStreams>(transport, grid, *access) : std::nullopt;
}

std::optional<CopyStreams> copy_streams(const std::optional<DeviceAccess>& access) {
  return access ? std::make_optional<CopyStreams>(access->device) : std::nullopt;
}

}  // namespace

Duration stall_limit(const Options& options) {
  if (options.stall_abort.count() > 0) return saturated(options.stall_abort);
  const Duration limit = saturated(options.operation_timeout);
  if (limit == Duration(0)) return Duration::max();
  // A stall is reported up to two and a half complaint intervals after its limit. An interval is at
  // most an eighth of the limit, so with a limit of two thirds of the timeout the report comes in
  // time for any timeout.
  const Duration complaint =
      complaint_interval({.mismatch_after = saturated(options.mismatch_after),
                          .peer_timeout = saturated(options.peer_timeout)});
  return std::max(limit / 3 * 2, std::min(limit / 10 * 9, limit - 4 * complaint));
}

Engine::Engine(Transport& transport, const ProcessGrid& grid, EngineClocks clocks,
               const Options& options, const Calibration& calibration,
               const TransportLimits& limits, DeviceContext* device_context, ReduceTeam* team,
               const std::atomic<int>* user_threads, const EngineRole& role)
    : transport_(transport),
      grid_(grid),
      clocks_(clocks),
      options_(options),
      group_(role.group),
      calibration_(calibration),
      messages_(transport, limits.buckets - 1, role.group),
      coordinator_(transport, grid_, clocks.time_outs, coordinator_options(options, limits, role),
                   user_threads, role.control_demux, &messages_),
      streams_(device_streams(transport, grid_, device_access(device_context, role))),
      copies_(copy_streams(device_access(device_context, role))),
      bounced_messages_(messages_, copies_ ? &*copies_ : nullptr),
      executor_(transport, streams_ ? &*streams_ : nullptr, team),
      buckets_(executor_, grid_, limits, coordinator_.acts()),
      context_{.buckets = buckets_,
               .executor = executor_,
               .transport = transport_,
               .grid = grid_,
               .streams = streams_ ? &*streams_ : nullptr,
               .copies = copies_ ? &*copies_ : nullptr,
               .options = options_,
               .costs = calibration_.costs,
               // A group has other links than the job, for which the choices were tuned.
               .tuning = role.group.empty() ? &calibration_.tuning : nullptr},
      activity_(role.pulse),
      runner_(coordinator_, executor_, buckets_, activity_),
      operations_(coordinator_, context_, runner_, activity_,
                  [this](const auto& call) { take(call); }),
      gradients_(coordinator_, context_, runner_, clocks.steps, activity_),
      composite_ops_(operations_),
      joining_(coordinator_, runner_, operations_, gradients_, transport.rank()),
      closing_(coordinator_, runner_, operations_, transport.rank()) {}

void Engine::submit(std::shared_ptr<Operation> operation) {
  if (operation->name.empty()) operation->name = operation->default_name();
  enqueue(std::move(operation));
}

void Engine::enqueue(Submission submission) {
  if (!queue_.push(submission)) refuse(submission, *failure_);
}

bool Engine::poll() noexcept {
  if (ended()) return false;
  try {
    return move();
  } catch (...) {
    fail_with_exception(activity_.verb());
    return true;
  }
}

void Engine::fail_with_exception(EngineVerb verb) noexcept {
  if (activity_.verb() != verb) activity_.begin(verb);
  const Error error = caught_error(transport_.rank(), activity_);
  if (failure_) return end();  // The first error counts, and peers have it.
  succeeds([&] { coordinator_.fail(error); });
  fail_all(coordinator_.failure() ? *coordinator_.failure() : error);
}

bool Engine::move() {
  // Submitted work is sent before the transport is polled, because polling a network is a system
  // call.
  bool moved = absorb() && run();
  // The thread that has just submitted work may now have its result. Other work, such as questions
  // of peers, waits for a few moves at most.
  if (moved && ++short_moves_ % kShortMoves != 0) return true;
  moved |= receive();
  if (failure_) return linger();
  moved |= agree();
  moved |= start();
  moved |= run();
  if (coordinator_.failure() && !failure_) fail_all(*coordinator_.failure());
  return moved;
}

/// Takes submitted work (ready buckets, operations, registrations). Also begins the next stages of
/// composite calls, so that their operations are sent as early as submitted ones.
bool Engine::absorb() {
  activity_.begin(EngineVerb::kMark);
  queue_.drain(drained_);
  for (const Submission& submission : drained_) {
    if (failure_) {
      refuse(submission, *failure_);
    } else if (closing_.has_begun() && begins_something(submission)) {
      refuse(submission, closed_error());
      if (const auto* const ready = std::get_if<ReadyBucket>(&submission)) {
        ready->group->fail(closed_error());
      }
    } else {
      std::visit([this](const auto& item) { take(item); }, submission);
    }
  }
  const bool any = !drained_.empty();
  drained_.clear();
  const bool has_next = !failure_ && composite_ops_.poll();
  if (has_next && composite_ops_.is_idle()) attends_ = joining_.is_busy() || closing_.has_begun();
  return any || has_next;
}

bool Engine::receive() {
  activity_.begin(EngineVerb::kAgree);
  return transport_.poll();
}

/// Advances agreement and applies decisions.
bool Engine::agree() {
  bool moved = coordinator_.poll();
  if (coordinator_.is_check_due(executor_.busy() || messages_.waiting())) {
    awaited_peers_.clear();
    executor_.append_awaited_peers(awaited_peers_);
    messages_.append_awaited_peers(awaited_peers_);
    coordinator_.check_peers(awaited_peers_);
    const std::set<int>& joined = coordinator_.joined();
    if (!joined.empty() && !joined.contains(transport_.rank())) {
      messages_.end_hopeless(joined, coordinator_.closed(), coordinator_.join_key());
    }
  }
  const std::vector<Frame> decisions = coordinator_.take_decisions();
  for (const Frame& decision : decisions) apply(decision);
  if (attends_ && !failure_ && attend()) moved = true;
  return moved || !decisions.empty();
}

/// Advances composite calls, joining and closing, which need several agreements.
bool Engine::attend() {
  bool moved = false;
  if (joining_.is_busy() && joining_.poll()) moved = true;
  if (closing_.has_begun() && move_closing()) moved = true;
  attends_ = joining_.is_busy() || !composite_ops_.is_idle() || closing_.has_begun();
  return moved;
}

/// Advances the end: tells other ranks that this rank begins nothing more, then proposes the end
/// once all operations that this rank has begun are over.
bool Engine::move_closing() {
  const Closing::Stage before = closing_.stage();
  if (before == Closing::Stage::kBegun) {
    // Once told, other ranks assume that this rank sends no more messages.
    if (joining_.is_busy() || bounced_messages_.has_sends()) return false;
    closing_.tell();
    messages_.confirm_offers(coordinator_.close_key());
  }
  closing_.decline_invitations();
  if (closing_.has_proposed()) return false;
  messages_.end_hopeless(coordinator_.joined(), coordinator_.closed(), coordinator_.join_key());
  // A joined rank will refuse the end, and then the groups must go on.
  const bool is_refused = coordinator_.joined().size() > coordinator_.closed().size();
  const bool are_others_over = is_refused || !others_are_over_ || others_are_over_();
  if (are_others_over && !is_at_work()) closing_.propose();
  return closing_.stage() != before;
}

bool Engine::is_at_work() const {
  return coordinator_.has_pending() || executor_.busy() || !composite_ops_.is_idle() ||
         messages_.waiting() || bounced_messages_.waiting();
}

/// Starts the buckets that are ready on all ranks.
bool Engine::start() {
  if (failure_) return false;
  const std::span<const Agreed> agreed = coordinator_.take_agreed();
  for (const Agreed& each : agreed) runner_.start(each.bucket);
  return !agreed.empty();
}

/// Advances started buckets, to their end if possible.
bool Engine::run() {
  if (failure_) return false;
  activity_.begin(EngineVerb::kRun);
  bool moved = messages_.poll();
  moved |= bounced_messages_.poll();
  moved |= executor_.poll();
  if (const auto error = executor_.device_failure()) {
    fail_device(*error);
  } else {
    complete();
  }
  return moved;
}

/// Notifies the owners of finished buckets.
void Engine::complete() {
  for (const BucketId id : executor_.take_enqueued()) runner_.enqueued(id);
  for (const BucketId id : executor_.take_finished()) runner_.finish(id);
  limit_revoking();
  runner_.poll_revoking();
}

/// Returns whether no peer writes to tensors of abandoned buckets any more. Ignores peers that have
/// not finished within `kRevokeLimit`, because their process may have been stopped.
bool Engine::limit_revoking() {
  if (executor_.poll_revoking()) {
    revoke_until_.reset();
    return true;
  }
  const TimePoint now = clocks_.time_outs.now();
  if (!revoke_until_) revoke_until_ = later(now, kRevokeLimit);
  if (now < *revoke_until_) return false;
  executor_.forget_writers();
  return true;
}

void Engine::apply(const Frame& decision) {
  if (decision.kind == FrameKind::kAccept) {
    if (closing_.accept(decision)) return close();
    if (!operations_.accept(decision) && !gradients_.accept(decision)) joining_.accept(decision);
    return;
  }
  for (const ProposalKey& key : decision.keys) {
    if (operations_.reject(key, decision.error) || gradients_.reject(key, decision.error) ||
        joining_.reject(key, decision.error) || closing_.reject(key, decision.error)) {
      continue;
    }
    if (is_bucket_hash(key.hash)) runner_.reject(key, decision.error);
  }
}

bool Engine::device_busy() const {
  return executor_.device_busy() || bounced_messages_.is_copying() ||
         composite_ops_.awaits_device() || (joining_.is_busy() && gradients_.awaits_device()) ||
         (streams_ && failure_ && !ended());
}

bool Engine::idle() const {
  return ended() || (!failure_ && !coordinator_.waiting() && !executor_.busy() &&
                     !messages_.waiting() && !bounced_messages_.waiting() && !attends_ &&
                     queue_.empty() && !coordinator_.has_postponed());
}

std::string Engine::describe_wait() const {
  return coordinator_.describe_wait() + "; " + executor_.describe_wait() + "; " +
         messages_.describe_wait();
}

// --- The end of a job ---------------------------------------------------------------------------

Error Engine::closed_error() const {
  return {.code = ErrorCode::kShutdown,
          .group = group_,
          .what = group_.empty() ? "the runtime is closed" : "the group is closed"};
}

/// Ends the engine in order. Precondition: all ranks have agreed on the end; nothing is in flight.
void Engine::close() {
  if (failure_) return;
  const auto stray = messages_.take_strays();
  if (stray) log::error(stray->to_string());
  has_strays_ = stray || buckets_.has_rejected();
  fail_all(closed_error());
}

void Engine::take(const std::shared_ptr<Operation>& operation) {
  if (operation->kind != OperationKind::kClose) return operations_.submit(operation);
  closing_.submit(operation);
  attends_ = true;
}

bool Engine::begins_something(const Submission& submission) {
  const auto* const operation = std::get_if<std::shared_ptr<Operation>>(&submission);
  const bool closes = operation != nullptr && (*operation)->kind == OperationKind::kClose;
  return !closes && !std::holds_alternative<Withdrawal>(submission) &&
         !std::holds_alternative<Error>(submission);
}

void Engine::refuse(const Submission& submission, const Error& error) noexcept {
  if (const auto* operation = std::get_if<std::shared_ptr<Operation>>(&submission)) {
    (*operation)->ticket->fail(error);
  } else if (const auto* group = std::get_if<std::shared_ptr<GradientSetState>>(&submission)) {
    (*group)->fail(error);
  } else if (const auto* message = std::get_if<std::shared_ptr<Message>>(&submission)) {
    (*message)->fail(error);
  } else if (const auto* ticket = std::get_if<std::shared_ptr<JoinTicket>>(&submission)) {
    (*ticket)->fail(error);
  } else if (const auto* call = std::get_if<std::shared_ptr<CompositeOp>>(&submission)) {
    (*call)->fail(error);
  }
  // Other submissions need no error: the set of a ready bucket and a cancelled receive already have
  // one, and the caller of `abort` knows it.
}

void Engine::fail_device(const Error& error) {
  const TimePoint now = clocks_.time_outs.now();
  if (!device_failed_at_) device_failed_at_ = now;
  const bool is_effect = error.code == ErrorCode::kPeerLost;
  if (!is_effect || now - *device_failed_at_ >= kCauseWithin) coordinator_.fail(error);
}

void Engine::fail_with_job(const Error& error) noexcept {
  if (!failure_ && !ended()) fail_all(error);
}

/// Begins the end of the engine with `error`. Performs every step, even if an earlier step throws.
void Engine::fail_all(const Error& error) noexcept {
  failure_ = copied(error);
  const bool is_orderly = error.code == ErrorCode::kShutdown;
  has_messages_ = executor_.has_messages_in_flight();
  succeeds([&] { executor_.cancel(); });
  if (!is_orderly && coordinator_.has_told()) succeeds([&] { transport_.say_goodbye(); });
  if (!is_orderly) succeeds([&] { abort_device(); });
  succeeds([&] { messages_.fail_all(error); });
  bounced_messages_.fail_all(error);
  for (const Submission& submission : drained_) refuse(submission, error);  // left over by `absorb`
  const Duration linger_for = transport_.world_size() > 1 ? kLinger : Duration::zero();
  linger_until_ = clocks_.time_outs.now() + (is_orderly ? kFinalizeWithin : linger_for);
  if (!succeeds([&] { linger(); })) end();
}

void Engine::fail_calls() noexcept {
  operations_.fail_all(*failure_);
  gradients_.fail_all(*failure_);
  composite_ops_.fail_all(*failure_);
  joining_.fail_all(*failure_);
  closing_.fail_all(*failure_);
}

bool Engine::abort_device() {
  const bool is_own_over = !streams_ || streams_->abort();
  const bool are_others_over = !others_have_aborted_ || others_have_aborted_();
  if (is_own_over && are_others_over) return true;
  const TimePoint now = clocks_.time_outs.now();
  if (!abort_until_) abort_until_ = later(now, kAbortWithin);
  if (now < *abort_until_) return false;
  if (streams_ && !*streams_->device().stuck()) {
    log::error(
        "collectives of the device could not be aborted; its memory is leaked, and this "
        "process ends without destructors of CUDA");
    streams_->device().note_stuck();
  }
  return true;
}

/// Continues the end after a failure. Returns true at the end, so that the driving thread does not
/// sleep, because nothing would wake it.
bool Engine::linger() {
  // Calls fail only when their memory is no longer in use: messages in flight use it until the
  // transport's end, and peers may finish writes that they have begun.
  const bool is_orderly = failure_->code == ErrorCode::kShutdown && !abort_until_;
  const bool is_over = is_orderly && (!streams_ || streams_->finalize());
  const bool is_revoked = limit_revoking();
  const bool is_late = is_revoked && clocks_.time_outs.now() >= linger_until_;
  const bool is_aborted = (is_orderly && !is_late) || is_over || abort_device();
  if (is_revoked && is_aborted && !has_messages_ && !std::exchange(has_failed_calls_, true)) {
    fail_calls();
  }
  awaits_abort_ = is_late && !is_aborted;
  if (is_over || (is_late && is_aborted)) end();
  return ended();
}

void Engine::end() noexcept {
  const bool is_orderly = failure_->code == ErrorCode::kShutdown;
  if (!succeeds([&] { transport_.shutdown(is_orderly); })) {
    succeeds([&] { transport_.shutdown(false); });
  }
  if (!let_go() && group_.empty()) stop();  // The job's transport has ended.
  queue_.close();
  absorb();
  ended_.store(true, std::memory_order_release);
}

bool Engine::let_go() noexcept {
  if (has_let_go_) return true;
  bool is_over = false;
  succeeds([&] { is_over = executor_.let_go(); });
  is_over &= messages_.let_go(*failure_);
  if (is_over) stop();
  return is_over;
}

void Engine::stop() noexcept {
  has_let_go_ = true;
  messages_.fail_transfers(*failure_);
  fail_calls();
  gradients_.stop_all();
}

}  // namespace kolo
