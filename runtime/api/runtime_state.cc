#include "runtime/api/runtime_state.h"

#include <algorithm>
#include <exception>
#include <utility>

#include <fmt/format.h>
#include <xxhash.h>

#include "comm/base/check.h"
#include "comm/base/log.h"

namespace kolo {
namespace {

/// Longest time that `give_up` spends on telling one node; an unreachable node delays the next one.
constexpr Duration kKnockWithin = std::chrono::seconds(1);

std::shared_ptr<TicketGroup> ticket_group(RuntimeState& runtime, const Engine& engine,
                                          std::string group) {
  return std::shared_ptr<TicketGroup>(new TicketGroup{
      .limit = {.time = engine.options().operation_timeout, .group = std::move(group)},
      .progress_engine = runtime.progress_engine(),
      .threads = runtime.threads(),
      .leave_job = [&runtime](std::string_view why) { runtime.abort(why); }});
}

std::uint64_t key_of(std::string_view name, std::uint64_t kind) {
  return XXH3_64bits_withSeed(name.data(), name.size(), kind);
}

}  // namespace

// --- GroupState ---------------------------------------------------------------------------------

GroupState::GroupState(RuntimeState& runtime)
    : runtime_(runtime),
      engine_(runtime.engine()),
      grid_(runtime.grid()),
      rank_(runtime.rank()),
      ranks_of_job_(grid_.ranks()),
      tickets_(ticket_group(runtime, engine_, {})),
      calls_(tickets_->operations, rank_, grid_.world_size(), runtime.device()),
      messages_(tickets_->messages, runtime.device(), grid_.world_size()) {}

GroupState::GroupState(RuntimeState& runtime, std::shared_ptr<GroupEngine> group)
    : runtime_(runtime),
      group_(std::move(group)),
      engine_(group_->engine()),
      grid_(group_->grid()),
      rank_(group_->rank()),
      ranks_of_job_(group_->ranks()),
      tickets_(ticket_group(runtime, engine_, group_->text())),
      calls_(tickets_->operations, rank_, grid_.world_size(), runtime.device()),
      messages_(tickets_->messages, runtime.device(), grid_.world_size()) {}

GroupState::~GroupState() {
  if (group_ == nullptr || closed_ || !runtime_.is_of_this_process()) return;
  try {
    // Not `begin`: this rank may have joined. No ticket: it would log that the job has ended.
    engine_.submit(calls_.plain(OperationKind::kClose));
    progress_engine().attend(ProgressEngine::Next::kUnknown);
  } catch (const std::exception& e) {
    log::error(std::string("releasing a group: ") + e.what());
  }
}

void GroupState::enter() const { runtime_.enter(); }
void GroupState::exempt_thread() const { runtime_.exempt_thread(); }
void GroupState::abort(std::string_view why) { runtime_.abort(why); }
bool GroupState::is_of_this_process() const { return runtime_.is_of_this_process(); }
void GroupState::check_free() const {
  runtime_.check_process();
  if (!has_joined()) return;
  throw UsageError("this rank has joined; only join() may be called, until it returns",
                   limit().group);
}

/// Rethrows the exception that is being handled; adds the group to a usage, data or configuration
/// error without one.
void GroupState::rethrow_in_group() const {
  try {
    throw;
  } catch (const UsageError& e) {
    if (!e.error().group.empty()) throw;
    throw UsageError(e.error().what, limit().group);
  } catch (const KoloError& e) {
    Error error = e.error();
    const bool is_of_caller = error.code == ErrorCode::kData || error.code == ErrorCode::kConfig;
    if (!is_of_caller || !error.verb.empty() || !error.group.empty()) throw;
    error.group = limit().group;
    throw KoloError(std::move(error));
  }
}

PlanInputs GroupState::plan_inputs() const {
  return {.rank = rank_, .grid = grid_, .options = options(), .costs = costs()};
}
const LinkCosts& GroupState::costs() const { return runtime_.costs(); }
const Options& GroupState::options() const { return runtime_.options(); }
Device* GroupState::device() const { return runtime_.device(); }
ProgressEngine& GroupState::progress_engine() { return *runtime_.progress_engine(); }

/// Records an event after the work enqueued on `stream`; null for a buffer in host memory.
std::shared_ptr<const Event> GroupState::ready_event(MemoryKind memory, NativeStream stream) {
  if (memory != MemoryKind::kDevice || device() == nullptr) return nullptr;
  std::shared_ptr<Event> event = device()->make_event();
  device()->record(stream, *event);
  return event;
}

Ticket GroupState::begin(OperationKind kind, std::string_view name, const Tensors& tensors,
                         NativeStream stream, int root, const Reduction& reduction) {
  check_free();
  auto operation = within_group([&] { return calls_.make(kind, name, tensors, root, reduction); });
  operation->ready = ready_event(operation->memory, stream);
  return submit(std::move(operation), key_of(name, static_cast<std::uint64_t>(kind)));
}

Ticket GroupState::begin(OperationKind kind) {
  check_free();
  return submit(calls_.plain(kind), static_cast<std::uint64_t>(kind));
}

Ticket GroupState::begin_own(OperationKind kind, std::string_view name, const Tensors& tensors) {
  check_free();
  auto operation = calls_.make(kind, name, tensors);
  operation->space = NameSpace::kRuntime;
  return submit(std::move(operation), key_of(name, static_cast<std::uint64_t>(kind)));
}

Ticket GroupState::begin(Message::Kind kind, const Buffers& buffers, int peer, std::uint64_t tag,
                         NativeStream stream) {
  check_free();
  auto message = within_group([&] { return messages_.make(kind, buffers, peer, tag, stream); });
  const std::uint64_t terms[] = {static_cast<std::uint64_t>(kind), static_cast<std::uint64_t>(peer),
                                 tag};
  return submit(std::move(message), XXH3_64bits(terms, sizeof terms));
}

Ticket GroupState::begin(std::string_view name, Span<const TableRows> tables,
                         const RowOptions& row_options, std::vector<RowSums>&& memory,
                         NativeStream stream) {
  check_free();
  constexpr std::uint64_t kRows = 1000;  // distinct from the kinds of operations
  return submit(within_group([&] {
                  check(memory.empty() || memory.size() == tables.size(),
                        fmt::format("there is memory of {} results for {} tables", memory.size(),
                                    tables.size()));
                  std::vector<RowSums> fresh(memory.empty() ? tables.size() : 0);
                  auto reduction = std::make_shared<RowReduction>(
                      plan_inputs(), name, tables, row_options, memory.empty() ? fresh : memory,
                      RowDevice{device(), stream});
                  memory.clear();
                  return reduction;
                }),
                key_of(name, kRows));
}

Ticket GroupState::submit(InFlight::What what, std::uint64_t key) {
  return Ticket(std::make_shared<InFlight>(tickets_, engine_, std::move(what), key));
}

/// Throws UsageError if a gradient in device memory is not on this rank's device.
void GroupState::check_device(const GradientSetState& group) const {
  if (device() == nullptr) return;
  for (const GradientSpec& each : group.gradients()) {
    if (each.memory != MemoryKind::kDevice || each.data == nullptr) continue;
    const std::string problem = device()->problem_with(each.data, 1);
    check(problem.empty(), [&] {
      return fmt::format("gradient '{}' of set '{}' is in {}", each.name, group.name(), problem);
    });
  }
}

std::shared_ptr<GradientSetState> GroupState::register_group(
    std::shared_ptr<GradientSetState> group) {
  check_free();
  within_group([&] { check_device(*group); });
  if (auto late = take_late(*group)) {
    group = std::move(late);
    group->hold();
  } else {
    group->write_to(runtime_.timeline());
    engine_.submit(group);
  }
  try {
    group->registration().wait_within(limit(), &progress_engine());
  } catch (const KoloError&) {
    if (!group->failed()) {  // It is not decided, or just has been.
      group->let_go();
      const MutexLock lock(mutex_);
      late_[group->name()] = std::move(group);
    }
    throw;
  }
  return group;
}

/// Returns the timed-out registration that `again` repeats; null if there is none, or if `again`
/// corrects one that has failed since. Throws UsageError if a registration of that name is not
/// decided and has other gradients or other memory.
std::shared_ptr<GradientSetState> GroupState::take_late(const GradientSetState& again) {
  const MutexLock lock(mutex_);
  const auto late = late_.find(again.name());
  if (late == late_.end()) return nullptr;
  const GradientSetState& first = *late->second;
  const bool has_same_memory = std::ranges::equal(first.gradients(), again.gradients(), {},
                                                  &GradientSpec::data, &GradientSpec::data);
  const bool is_same = first.describe() == again.describe() && has_same_memory;
  check(is_same || first.failed(),
        "the registration of gradient set '" + again.name() +
            "' has timed out and is not decided; repeat it with the same gradients");
  const auto taken = late_.extract(late);
  return is_same ? taken.mapped() : nullptr;
}

void GroupState::marked(GradientSetState& group,
                        const std::optional<GradientIterations::ReadyBucket>& bucket) {
  runtime_.check_process();
  if (bucket) bucket_ready(group, *bucket);
  if (const auto weights = group.mark_weights()) bucket_ready(group, *weights);
}

void GroupState::bucket_ready(GradientSetState& group,
                              const GradientIterations::ReadyBucket& bucket) {
  engine_.submit(group, bucket.index);
  progress_engine().attend(bucket.expects_wait ? ProgressEngine::Next::kDrive
                                               : ProgressEngine::Next::kUnknown);
  if (bucket.is_last) group.iterations().end_marking();
}

/// Returns the job ranks of a new group's members. Throws UsageError for invalid members.
std::vector<int> GroupState::checked_members(const std::vector<int>& ranks,
                                             const GroupOptions& group_options) const {
  std::vector<int> ranks_of_job;
  std::vector<bool> seen(ranks_of_job_.size());
  for (int rank : ranks) {
    check(rank >= 0 && rank < grid_.world_size(),
          fmt::format("a group of rank {}, where there are {}", rank, grid_.world_size()));
    const auto index = static_cast<std::size_t>(rank);
    check(!seen[index], fmt::format("a group names rank {} twice", rank));
    seen[index] = true;
    ranks_of_job.push_back(ranks_of_job_[index]);
  }
  check(seen[static_cast<std::size_t>(rank_)],
        fmt::format("rank {} creates a group without itself; only members call it", rank_));
  check(group_options.arena_bytes > 0, "a group needs an arena");
  check(group_options.operation_timeout.count() >= 0, "a group has a negative operation_timeout");
  return ranks_of_job;
}

std::shared_ptr<GroupState> GroupState::create(const std::vector<int>& ranks,
                                               const GroupOptions& group_options) {
  enter();
  check_free();
  const std::vector<int> ranks_of_job =
      within_group([&] { return checked_members(ranks, group_options); });
  return std::make_shared<GroupState>(runtime_,
                                      runtime_.create(group_options, ranks_of_job, group_));
}

int GroupState::join() {
  runtime_.check_process();
  enter();
  within_group([this] {
    check(!engine_.keeps_order(), "the group keeps one order of operations, so no rank can join");
  });
  if (!join_) {
    join_ = std::make_shared<JoinTicket>();
    has_joined_.store(true, std::memory_order_relaxed);
    engine_.submit(join_);
  }
  const auto leave = [this] {
    has_joined_.store(false, std::memory_order_relaxed);
    return std::exchange(join_, nullptr);
  };
  try {
    // Each operation that another rank begins restarts the time limit.
    std::uint64_t parts = join_->parts;
    while (!join_->wait(limit().time, &progress_engine())) {
      const std::uint64_t before = std::exchange(parts, join_->parts);
      if (parts != before) continue;
      throw KoloError(
          {.code = ErrorCode::kTimeout,
           .group = limit().group,
           .verb = "join",
           .what = fmt::format("not all ranks have joined, and none has begun anything for {} ms; "
                               "operation_timeout sets this limit",
                               limit().time.count())});
    }
  } catch (const KoloError&) {
    if (join_->done()) leave();
    throw;
  }
  return leave()->last;
}

void GroupState::close() {
  if (closed_) return;
  begin(OperationKind::kClose).wait();
  closed_ = true;
  if (group_ == nullptr && runtime_.timeline()) runtime_.timeline()->expect_complete();
}

// --- RuntimeState -------------------------------------------------------------------------------

RuntimeState::RuntimeState(Rendezvous& rendezvous, Options options)
    : options_(std::move(options)),
      timeline_(options_.timeline.empty()
                    ? nullptr
                    : std::make_shared<Timeline>(options_.timeline, rendezvous.rank())),
      connection_(connect(rendezvous, options_)),
      team_(connection_.reduce_threads, connection_.wait),
      engine_(*connection_.transport, connection_.grid,
              {.time_outs = coarse_clock_, .steps = steady_clock_}, options_,
              connection_.calibration, connection_.limits,
              connection_.device_context ? &*connection_.device_context : nullptr, &team_,
              threads_.count(), {.control_demux = &demux_, .pulse = &pulse_}),
      local_arena_(std::make_shared<LocalArena>(
          connection_.limits.arena_bytes,
          connection_.limits.arena_bytes + options_.group_arena_bytes)),
      engines_(
          engine_, demux_,
          {.transport = *connection_.transport,
           .grid = connection_.grid,
           .clocks = {.time_outs = coarse_clock_, .steps = steady_clock_},
           .options = options_,
           .calibration = connection_.calibration,
           .team = &team_,
           .user_threads = threads_.count(),
           .pulse = &pulse_,
           .device = device(),
           .connector =
               connection_.device_context ? connection_.device_context->connector.get() : nullptr},
          *local_arena_),
      progress_engine_(std::make_shared<ProgressEngine>(engines_, *connection_.transport,
                                                        connection_.wait, threads_,
                                                        connection_.listener.get())),
      world_(std::make_shared<GroupState>(*this)),
      exceptions_(std::uncaught_exceptions()),
      watchdog_(progress_engine_->progress_lock(), pulse_, engine_.acts(),
                Watchdog::limits(options_, stall_limit(options_)), watchdog_duties()),
      thread_(*progress_engine_) {
  enter();
}

RuntimeState::~RuntimeState() {
  if (world_->is_closed() || has_left_) return;
  // An exception unwinds the stack: this rank begins nothing more, so peers must not wait for it.
  if (std::uncaught_exceptions() > exceptions_) {
    abort("an exception destroyed the runtime");
    return;
  }
  try {
    world_->close();
  } catch (const KoloError& e) {
    log::error(std::string("closing the runtime: ") + e.what());
    if (!world_->is_closed()) abort("the runtime could not be closed");
  }
}

std::shared_ptr<GroupEngine> RuntimeState::create(const GroupOptions& group_options,
                                                  const std::vector<int>& ranks,
                                                  const std::shared_ptr<GroupEngine>& parent) {
  auto creation = std::make_shared<GroupCreation>();
  creation->name = group_options.name;
  creation->ranks = ranks;
  creation->arena_bytes = group_options.arena_bytes;
  creation->operation_timeout = group_options.operation_timeout;
  creation->parent = parent;
  const std::string text =
      GroupProposal{.name = creation->name, .ranks = ranks, .settings = {}, .place = {}}.text();
  {
    const MutexLock lock(mutex_);
    if (const auto late = late_creations_.find(text); late != late_creations_.end()) {
      const GroupCreation& first = *late->second;
      const bool has_failed = first.ticket.done() && !first.group;
      check(has_failed || first.settings() == creation->settings(),
            "the creation of group " + text + " has timed out; repeat it with the same settings");
      creation = std::move(late_creations_.extract(late).mapped());
    } else {
      engines_.submit(creation);
    }
  }
  if (creation->ticket.wait(options_.operation_timeout, progress_engine_.get()))
    return creation->group;
  {
    const MutexLock lock(mutex_);
    late_creations_[text] = creation;
  }
  throw KoloError({.code = ErrorCode::kTimeout,
                   .group = text,
                   .what = fmt::format("not all members have created it within {} ms; "
                                       "operation_timeout sets this limit",
                                       options_.operation_timeout.count())});
}

std::shared_ptr<std::byte[]> RuntimeState::allocate(std::size_t bytes) {
  check_process();
  Transport& transport = *connection_.transport;
  const std::size_t offset = local_arena_->allocate(bytes);
  // The pointer exists before `commit`, which may throw, so it always frees the allocation.
  std::shared_ptr<std::byte[]> memory(
      transport.memory(rank()).data() + offset,
      [arena = local_arena_, offset](std::byte*) { arena->release(offset); });
  transport.commit(offset, bytes);
  return memory;
}

Watchdog::Duties RuntimeState::watchdog_duties() {
  Watchdog::Duties duties{
      .note_stuck = [this](std::string_view verb) { connection_.transport->note_stuck(verb); },
      .give_up = [this](const StallJudge::Verdict& verdict) { give_up(verdict); }};
  if (options_.stall_warn.count() > 0) duties.warn = log::warn;
  return duties;
}

/// Reports the error of a stuck thread to all other waiting threads, to the peers on this node, and
/// to one rank of each other node, which tells its peers. If the stuck thread returns, its engine
/// ends the job with the same error.
void RuntimeState::give_up(const StallJudge::Verdict& verdict) {
  Error error{
      .code = ErrorCode::kStall,
      .rank = rank(),
      .peer = rank(),
      .verb = std::string(to_string(verdict.verb)),
      .what = fmt::format("rank {} has not returned from a call for {:.3g} s and answers no "
                          "other rank; stall_abort sets this limit",
                          rank(), std::chrono::duration<double>(verdict.stuck_for).count())};
  log::report(error);
  connection_.transport->post_error(error);
  engine_.abort(error);
  progress_engine_->give_up(error);
  for (const std::string& listener : connection_.listeners) {
    OutOfBandAbort::knock(listener, error, steady_clock_.now() + kKnockWithin);
  }
}

void RuntimeState::abort(std::string_view why) {
  check_process();
  has_left_ = true;
  engine_.abort({.code = ErrorCode::kPeerLost,
                 .rank = rank(),
                 .peer = rank(),
                 .what = fmt::format("left the job: {}", why)});
  progress_engine_->attend(ProgressEngine::Next::kUnknown);
}

}  // namespace kolo
