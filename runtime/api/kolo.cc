#include "runtime/api/kolo.h"

#include <exception>
#include <utility>

#include <fmt/format.h>

#include "comm/base/check.h"
#include "comm/base/log.h"
#include "comm/rendezvous/rendezvous_factory.h"
#include "runtime/api/option_table.h"
#include "runtime/engine/connect.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/gradient_group.h"
#include "runtime/engine/late_registrations.h"
#include "runtime/engine/operation_calls.h"
#include "runtime/engine/operation_pool.h"
#include "runtime/observe/timeline.h"
#include "runtime/plan/compression_choice.h"
#include "runtime/plan/gradient_compression.h"
#include "runtime/wait/driver.h"
#include "runtime/wait/engine_thread.h"
#include "runtime/wait/user_threads.h"

namespace kolo {

/// Everything a runtime owns; members are destroyed in reverse: the thread first.
class RuntimeState {
 public:
  RuntimeState(Rendezvous& rendezvous, Options options)
      : options_(std::move(options)),
        timeline_(options_.timeline.empty()
                      ? nullptr
                      : std::make_shared<Timeline>(options_.timeline, rendezvous.rank())),
        connection_(connect(rendezvous, options_)),
        team_(connection_.reduce_threads, connection_.wait),
        engine_(*connection_.transport, connection_.grid,
                {.time_outs = coarse_clock_, .steps = steady_clock_}, options_,
                connection_.calibration, connection_.limits,
                connection_.plane ? &*connection_.plane : nullptr, &team_, threads_.count()),
        driver_(
            std::make_shared<Driver>(engine_, *connection_.transport, connection_.wait, threads_)),
        calls_(unused_operations_, rank(), grid().world_size()),
        exceptions_(std::uncaught_exceptions()),
        thread_(*driver_) {
    enter();
  }

  ~RuntimeState() {
    if (closed_) return;
    // Unwinding: this rank cannot keep its part, so peers must not wait for it.
    if (std::uncaught_exceptions() > exceptions_) {
      abort("left the job because of an exception");
    } else {
      try {
        close();
      } catch (const KoloError& e) {
        log::error(std::string("closing the runtime: ") + e.what());
        abort("closed the runtime");
      }
    }
  }

  /// The calling thread belongs to those whose calls the ranks may wait for.
  void enter() const { threads_.enter(); }

  int rank() const { return connection_.transport->rank(); }
  const ProcessGrid& grid() const { return connection_.grid; }
  const LinkCosts& costs() const { return connection_.calibration.costs; }
  std::string link_costs() const { return to_string(connection_.calibration.costs); }
  const Options& options() const { return options_; }
  Device* device() const { return connection_.plane ? connection_.plane->device.get() : nullptr; }

  /// Behind what `stream` does to a buffer in device memory.
  std::shared_ptr<const Event> ready_event(const BufferView& buffer, NativeStream stream) {
    if (buffer.memory != MemoryKind::kDevice || !connection_.plane) return nullptr;
    Device& device = *connection_.plane->device;
    std::shared_ptr<Event> event = device.make_event();
    device.record(stream, *event);
    return event;
  }

  const OperationCalls& calls() const { return calls_; }

  /// Starts an operation, which goes on in the background.
  Ticket submit(const std::shared_ptr<Operation>& operation, NativeStream stream = {}) {
    operation->ready = ready_event(operation->buffer, stream);
    engine_.submit(operation);
    driver_->attend(Driver::Next::kUnknown);
    return {operation->ticket, driver_, options_.operation_timeout};
  }

  /// Runs an operation, which the caller's thread drives.
  void run(const std::shared_ptr<Operation>& operation, NativeStream stream = {}) {
    operation->ready = ready_event(operation->buffer, stream);
    engine_.submit(operation);
    operation->ticket->wait_within(options_.operation_timeout, driver_.get());
    unused_operations_.give_back(operation);
  }

  /// Returns the set when all ranks have agreed on it: `group`, or the one that this call repeats.
  std::shared_ptr<GradientGroup> register_group(std::shared_ptr<GradientGroup> group) {
    if (auto late = late_registrations_.take(*group)) {
      group = std::move(late);
    } else {
      group->write_to(timeline_);
      engine_.submit(group);
    }
    try {
      group->registration().wait_within(options_.operation_timeout, driver_.get());
    } catch (const KoloError&) {
      if (!group->registration().done()) late_registrations_.keep(std::move(group));
      throw;
    }
    return group;
  }

  void bucket_ready(GradientGroup& group, const GradientIterations::ReadyBucket& bucket) {
    engine_.submit(group, bucket.index);
    driver_->attend(bucket.expects_wait ? Driver::Next::kDrive : Driver::Next::kUnknown);
    if (bucket.is_last) group.iterations().end_marking();
  }

  Driver& driver() { return *driver_; }
  std::uint64_t network_bytes_sent() const { return engine_.network_bytes_sent(); }

  void close() {
    if (closed_) return;
    run(calls_.plain(OperationKind::kClose));
    closed_ = true;
  }

 private:
  void abort(std::string_view why) {
    engine_.abort({.code = ErrorCode::kPeerLost,
                   .rank = rank(),
                   .peer = rank(),
                   .what = fmt::format("rank {} {}", rank(), why)});
    driver_->attend(Driver::Next::kUnknown);
  }

  const Options options_;
  const std::shared_ptr<Timeline> timeline_;  // shared with gradient sets; null without the option
  const CoarseClock coarse_clock_;
  const SteadyClock steady_clock_;
  const UserThreads threads_;
  Connection connection_;
  ReduceTeam team_;
  Engine engine_;
  const std::shared_ptr<Driver> driver_;
  OperationPool unused_operations_;
  const OperationCalls calls_;
  LateRegistrations late_registrations_;
  const int exceptions_;
  bool closed_ = false;
  EngineThread thread_;
};

// --- Runtime ------------------------------------------------------------------------------------

Runtime Runtime::from_environment(Options options) {
  options = options_from_environment(std::move(options));
  auto rendezvous = rendezvous_from_environment(options.connect_timeout);
  Runtime runtime(std::move(rendezvous), std::move(options));
  if (runtime.rank() == 0) warn_about_unknown_variables();
  return runtime;
}

Runtime::Runtime(std::unique_ptr<Rendezvous> rendezvous, Options options)
    : state_(std::make_unique<RuntimeState>(*rendezvous, validated(std::move(options)))) {}

Runtime::Runtime(Runtime&&) noexcept = default;
Runtime& Runtime::operator=(Runtime&&) noexcept = default;
Runtime::~Runtime() = default;

int Runtime::rank() const {
  state_->enter();
  return state_->rank();
}
int Runtime::world_size() const { return state_->grid().world_size(); }
int Runtime::local_rank() const { return state_->grid().local_rank(rank()); }
int Runtime::local_size() const { return state_->grid().local_size(rank()); }
int Runtime::node() const { return state_->grid().node(rank()); }
int Runtime::num_nodes() const { return state_->grid().num_nodes(); }
const Options& Runtime::options() const { return state_->options(); }
std::string Runtime::link_costs() const { return state_->link_costs(); }
Device* Runtime::device() const { return state_->device(); }

GradientSet Runtime::register_gradients(std::string_view name, std::vector<GradientSpec> gradients,
                                        GradientOptions options) {
  if (!options.wire_dtype) options.wire_dtype = state_->options().wire_dtype;
  check(!name.empty(), "a gradient set needs a name");
  check_gradients(gradients, options);
  if (options.compression.empty()) options.compression = state_->options().compression;
  resolve_compression(gradients, CompressionRules::parse(options.compression));
  check_compression(gradients, options.op);
  CompressionChoices choices = choose_compression(gradients, state_->grid(), state_->costs());
  for (const CompressionDecision& decision : choices.decisions) {
    if (rank() == 0) log::info("compression: " + to_string(decision));
  }
  auto group = std::make_shared<GradientGroup>(std::string(name), std::move(gradients), options,
                                               std::move(choices));
  return GradientSet(*state_, state_->register_group(std::move(group)));
}

Ticket Runtime::all_reduce_async(std::string_view name, BufferView buffer, ReduceOp op,
                                 NativeStream stream) {
  return state_->submit(state_->calls().all_reduce(name, buffer, op), stream);
}

void Runtime::all_reduce(std::string_view name, BufferView buffer, ReduceOp op,
                         NativeStream stream) {
  state_->run(state_->calls().all_reduce(name, buffer, op), stream);
}

Ticket Runtime::all_reduce_async(std::string_view name, const void* input, BufferView result,
                                 ReduceOp op) {
  return state_->submit(state_->calls().all_reduce(name, input, result, op));
}

void Runtime::all_reduce(std::string_view name, const void* input, BufferView result, ReduceOp op) {
  state_->run(state_->calls().all_reduce(name, input, result, op));
}

Ticket Runtime::broadcast_async(std::string_view name, BufferView buffer, int root,
                                NativeStream stream) {
  return state_->submit(state_->calls().broadcast(name, buffer, root), stream);
}

void Runtime::broadcast(std::string_view name, BufferView buffer, int root, NativeStream stream) {
  state_->run(state_->calls().broadcast(name, buffer, root), stream);
}

Ticket Runtime::reduce_async(std::string_view name, const void* input, BufferView result, int root,
                             ReduceOp op) {
  return state_->submit(state_->calls().reduce(name, input, result, root, op));
}

void Runtime::reduce(std::string_view name, const void* input, BufferView result, int root,
                     ReduceOp op) {
  state_->run(state_->calls().reduce(name, input, result, root, op));
}

Ticket Runtime::reduce_scatter_async(std::string_view name, const void* input, BufferView result,
                                     ReduceOp op, PartCounts counts) {
  return state_->submit(state_->calls().reduce_scatter(name, input, result, op, counts));
}

void Runtime::reduce_scatter(std::string_view name, const void* input, BufferView result,
                             ReduceOp op, PartCounts counts) {
  state_->run(state_->calls().reduce_scatter(name, input, result, op, counts));
}

Ticket Runtime::all_gather_async(std::string_view name, const void* input, BufferView result,
                                 PartCounts counts) {
  return state_->submit(state_->calls().all_gather(name, input, result, counts));
}

void Runtime::all_gather(std::string_view name, const void* input, BufferView result,
                         PartCounts counts) {
  state_->run(state_->calls().all_gather(name, input, result, counts));
}

Ticket Runtime::gather_async(std::string_view name, BufferView input, void* result, int root,
                             PartCounts counts) {
  return state_->submit(state_->calls().gather(name, input, result, root, counts));
}

void Runtime::gather(std::string_view name, BufferView input, void* result, int root,
                     PartCounts counts) {
  state_->run(state_->calls().gather(name, input, result, root, counts));
}

Ticket Runtime::scatter_async(std::string_view name, const void* input, BufferView result, int root,
                              PartCounts counts) {
  return state_->submit(state_->calls().scatter(name, input, result, root, counts));
}

void Runtime::scatter(std::string_view name, const void* input, BufferView result, int root,
                      PartCounts counts) {
  state_->run(state_->calls().scatter(name, input, result, root, counts));
}

Ticket Runtime::all_to_all_async(std::string_view name, const void* input, BufferView result,
                                 PartCounts counts) {
  return state_->submit(state_->calls().all_to_all(name, input, result, counts));
}

void Runtime::all_to_all(std::string_view name, const void* input, BufferView result,
                         PartCounts counts) {
  state_->run(state_->calls().all_to_all(name, input, result, counts));
}

void Runtime::barrier() { state_->run(state_->calls().plain(OperationKind::kBarrier)); }

std::uint64_t Runtime::network_bytes_sent() const { return state_->network_bytes_sent(); }

void Runtime::close() { state_->close(); }

// --- GradientSet --------------------------------------------------------------------------------

GradientSet::GradientSet(RuntimeState& runtime, std::shared_ptr<GradientGroup> group)
    : runtime_(&runtime), group_(std::move(group)) {}

GradientSet::GradientSet(GradientSet&&) noexcept = default;
GradientSet& GradientSet::operator=(GradientSet&&) noexcept = default;

GradientSet::~GradientSet() {
  if (group_ && group_->iterations().in_flight()) {
    log::warn(fmt::format(
        "gradient set '{}' was destroyed in the middle of an iteration; its memory must "
        "outlive the runtime",
        group_->name()));
  }
}

std::size_t GradientSet::size() const { return group_->gradients().size(); }

BufferView GradientSet::view(std::size_t index) const {
  check(index < size(), "no gradient has this index");
  return group_->view(index);
}

void GradientSet::ready(std::size_t index) {
  runtime_->enter();
  if (const auto bucket = group_->iterations().mark(index))
    runtime_->bucket_ready(*group_, *bucket);
}

void GradientSet::ready(std::size_t index, NativeStream stream) {
  runtime_->enter();
  if (const auto bucket = group_->iterations().mark(index, stream)) {
    runtime_->bucket_ready(*group_, *bucket);
  }
}

void GradientSet::wait() {
  if (!group_->iterations().wait(runtime_->options().operation_timeout, &runtime_->driver()))
    fail_late();
}

void GradientSet::wait(NativeStream stream) {
  if (!group_->iterations().wait(runtime_->options().operation_timeout, stream,
                                 &runtime_->driver()))
    fail_late();
}

void GradientSet::fail_late() const {
  const auto timeout = runtime_->options().operation_timeout;
  throw KoloError({.code = ErrorCode::kTimeout,
                   .verb = "complete",
                   .bucket = group_->name(),
                   .what = fmt::format("gradients are not combined after {} ms although no peer is "
                                       "lost; operation_timeout sets this limit",
                                       timeout.count())});
}

// --- Compression --------------------------------------------------------------------------------

void GradientSet::flush_residuals() {
  between_iterations("flush_residuals()");
  group_->compressed().flush_next();
}

std::vector<std::byte> GradientSet::save_compression() const {
  between_iterations("save_compression()");
  return to_bytes(group_->save_compression());
}

void GradientSet::load_compression(std::span<const std::byte> state) {
  between_iterations("load_compression()");
  group_->load_compression(compression_state_from(state));
}

void GradientSet::remap_compression(std::span<const std::vector<std::byte>> states) {
  between_iterations("remap_compression()");
  std::vector<CompressionState> old_ranks;
  for (const auto& state : states) old_ranks.push_back(compression_state_from(state));
  group_->remap_compression(old_ranks, runtime_->grid().world_size());
}

void GradientSet::drop_residuals() {
  between_iterations("drop_residuals()");
  log::warn(fmt::format("gradient set '{}': a residual of norm {:.6g} is dropped", group_->name(),
                        group_->compressed().drop_residuals()));
}

std::optional<double> GradientSet::residual_norm(std::string_view gradient) const {
  between_iterations("residual_norm()");
  return group_->compressed().residual_norm(gradient);
}

std::vector<CompressionStats> GradientSet::compression_stats() const {
  between_iterations("compression_stats()");
  return group_->compressed().stats();
}

bool GradientSet::is_sparse(std::size_t index) const { return group_->compressed().has(index); }

bool GradientSet::corrects_momentum(std::size_t index) const {
  return group_->compressed().corrects_momentum(index);
}

bool GradientSet::is_warming_up(std::size_t index) const {
  between_iterations("is_warming_up()");
  return group_->compressed().is_warming_up(index);
}

void GradientSet::between_iterations(std::string_view call) const {
  if (group_->iterations().in_flight()) {
    throw UsageError(fmt::format("{} belongs between wait() and the next ready() of set '{}'", call,
                                 group_->name()));
  }
}

PlanSummary GradientSet::plan() const { return group_->summary(); }

std::uint64_t GradientSet::too_large() const { return group_->too_large(); }

}  // namespace kolo
