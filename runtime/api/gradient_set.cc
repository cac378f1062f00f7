#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "comm/base/check.h"
#include "comm/base/log.h"
#include "runtime/api/runtime_state.h"

namespace kolo {

GradientSet::GradientSet(std::shared_ptr<GroupState> owner, std::shared_ptr<GradientSetState> group)
    : owner_(std::move(owner)), set_state_(std::move(group)) {}

GradientSet::GradientSet(GradientSet&&) noexcept = default;
GradientSet& GradientSet::operator=(GradientSet&& other) noexcept {
  if (this == &other) return *this;
  end();
  owner_ = std::move(other.owner_);
  set_state_ = std::move(other.set_state_);
  return *this;
}

GradientSet::~GradientSet() { end(); }

void GradientSet::end() noexcept {
  if (!set_state_ || !owner_->is_of_this_process()) return;
  set_state_->let_go();
  GradientIterations& iterations = set_state_->iterations();
  if (!iterations.uses_memory()) return;
  const std::chrono::milliseconds limit = owner_->limit().time;
  try {
    const std::vector<std::size_t> unmarked = iterations.unmarked();
    try {
      ProgressEngine* const engine = &owner_->progress_engine();
      const bool is_over = owner_->has_joined() ? iterations.await_rest(limit, engine)
                           : unmarked.empty()   ? set_state_->wait(limit, engine)
                                                : iterations.finish(limit, engine);
      if (is_over) return;
    } catch (const KoloError&) {
      // The set has failed.
    }
    if (iterations.failed() && iterations.await_stop(limit, &owner_->progress_engine())) return;
    const std::string why = fmt::format(
        "it destroyed gradient set '{}' in the middle of an iteration, {}", set_state_->name(),
        unmarked.empty() || iterations.failed()
            ? fmt::format("which is not over after {} ms", limit.count())
            : "without " + iterations.names_of(unmarked));
    log::error("left the job: " + why);
    owner_->abort(why);
    iterations.await_stop(std::chrono::milliseconds(0), &owner_->progress_engine());
  } catch (const std::exception& e) {
    // The driving thread is stuck in a call, and the watchdog ends the job.
    log::error(fmt::format("destroying gradient set '{}': {}", set_state_->name(), e.what()));
  }
}

std::size_t GradientSet::size() const { return set_state_->size(); }

BufferView GradientSet::view(std::size_t index) const {
  return owner_->within_group([&] {
    set_state_->iterations().check_index(index);
    return set_state_->view(index);
  });
}

void GradientSet::ready(std::size_t index) {
  owner_->enter();
  owner_->check_free();
  owner_->marked(*set_state_, owner_->within_group([&] { return set_state_->mark(index); }));
}

void GradientSet::ready(std::size_t index, NativeStream stream) {
  owner_->enter();
  owner_->check_free();
  owner_->marked(*set_state_, owner_->within_group(
                                  [&] { return set_state_->iterations().mark(index, stream); }));
}

void GradientSet::ready_at(std::size_t index, const void* data) {
  const void* const registered = view(index).data;
  owner_->within_group([&] {
    check(data == registered, [&] {
      return fmt::format(
          "gradient '{}' of set '{}' has moved: it was registered at {}, and is at {} "
          "now; keep its memory, or register the set again",
          set_state_->gradients()[index].name, set_state_->name(), registered, data);
    });
  });
  ready(index);
}

void GradientSet::absent(std::size_t index) {
  owner_->enter();
  owner_->check_free();
  owner_->marked(*set_state_, owner_->within_group([&] { return set_state_->mark_absent(index); }));
}

void GradientSet::absent(std::size_t index, NativeStream stream) {
  owner_->enter();
  owner_->check_free();
  owner_->marked(*set_state_,
                 owner_->within_group([&] { return set_state_->mark_absent(index, stream); }));
}

void GradientSet::give_up() {
  for (const std::size_t index : set_state_->iterations().unmarked()) absent(index);
}

void GradientSet::give_up(NativeStream stream) {
  for (const std::size_t index : set_state_->iterations().unmarked()) {
    if (view(index).memory == MemoryKind::kDevice) {
      absent(index, stream);
    } else {
      absent(index);
    }
  }
}

void GradientSet::set_samples(double samples) {
  between_iterations("set_samples()");
  owner_->within_group([&] { set_state_->set_samples(samples); });
}

/// Calls `wait_up_to(limit)`. Throws KoloError(kTimeout) if that returns false.
template <typename Wait>
void GradientSet::wait_within(const Wait& wait_up_to) const {
  owner_->check_free();
  const WaitLimit& limit = owner_->limit();
  if (owner_->within_group([&] { return wait_up_to(limit.time); })) return;
  throw KoloError({.code = ErrorCode::kTimeout,
                   .group = limit.group,
                   .verb = "complete",
                   .bucket = set_state_->name(),
                   .what = fmt::format("gradients are not combined after {} ms although no peer is "
                                       "lost; operation_timeout sets this limit",
                                       limit.time.count())});
}

void GradientSet::wait() {
  wait_within([&](auto limit) { return set_state_->wait(limit, &owner_->progress_engine()); });
}

bool GradientSet::wait_for(std::chrono::milliseconds limit) {
  owner_->check_free();
  // In `GradientSetState::wait` a limit of 0 means no limit.
  return owner_->within_group([&] {
    return set_state_->wait(std::max(limit, std::chrono::milliseconds(1)),
                            &owner_->progress_engine());
  });
}

void GradientSet::wait(NativeStream stream) {
  wait_within(
      [&](auto limit) { return set_state_->wait(limit, stream, &owner_->progress_engine()); });
}

void GradientSet::wait(std::size_t index) {
  wait_within(
      [&](auto limit) { return set_state_->wait_for(index, limit, &owner_->progress_engine()); });
}

bool GradientSet::wait_for(std::size_t index, std::chrono::milliseconds limit) {
  owner_->check_free();
  return owner_->within_group([&] {
    return set_state_->wait_for(index, std::max(limit, std::chrono::milliseconds(1)),
                                &owner_->progress_engine());
  });
}

int GradientSet::event() { return set_state_->iterations().event(); }

std::vector<std::size_t> GradientSet::take_combined() {
  owner_->check_free();
  return set_state_->take_combined();
}

// --- Compression --------------------------------------------------------------------------------

void GradientSet::flush_residuals() {
  between_iterations("flush_residuals()");
  set_state_->compressed().flush_next();
}

std::vector<std::byte> GradientSet::save_compression() const {
  between_iterations("save_compression()");
  return to_bytes(set_state_->save_compression());
}

void GradientSet::load_compression(Span<const std::byte> state) {
  between_iterations("load_compression()");
  owner_->within_group([&] { set_state_->load_compression(compression_state_from(state)); });
}

void GradientSet::remap_compression(Span<const std::vector<std::byte>> states) {
  between_iterations("remap_compression()");
  owner_->within_group([&] {
    std::vector<CompressionState> old_ranks;
    for (const auto& state : states) old_ranks.push_back(compression_state_from(state));
    set_state_->remap_compression(old_ranks, owner_->grid().world_size());
  });
}

void GradientSet::drop_residuals() {
  between_iterations("drop_residuals()");
  log::warn(fmt::format("gradient set '{}': a residual of norm {:.6g} is dropped",
                        set_state_->name(), set_state_->compressed().drop_residuals()));
}

std::optional<double> GradientSet::residual_norm(std::string_view gradient) const {
  between_iterations("residual_norm()");
  return set_state_->compressed().residual_norm(gradient);
}

std::vector<CompressionStats> GradientSet::compression_stats() const {
  between_iterations("compression_stats()");
  return set_state_->compressed().stats();
}

bool GradientSet::is_sparse(std::size_t index) const { return set_state_->compressed().has(index); }

bool GradientSet::may_become_sparse(std::size_t index) const {
  between_iterations("may_become_sparse()");
  return is_sparse(index) || set_state_->is_undecided(index);
}

float GradientSet::corrected_momentum(std::size_t index) const {
  return set_state_->compressed().corrected_momentum(index);
}

bool GradientSet::is_warming_up(std::size_t index) const {
  between_iterations("is_warming_up()");
  return set_state_->compressed().is_warming_up(index);
}

void GradientSet::between_iterations(std::string_view call) const {
  GradientIterations& iterations = set_state_->iterations();
  if (iterations.in_flight() && !iterations.is_marked()) {
    // `wait` on a stream has returned before the iteration is over.
    wait_within([&](std::chrono::milliseconds limit) {
      return iterations.finish(limit, &owner_->progress_engine()) || !iterations.in_flight();
    });
  }
  if (iterations.in_flight()) {
    throw UsageError(fmt::format("{} belongs between wait() and the next ready() of set '{}'", call,
                                 set_state_->name()),
                     owner_->limit().group);
  }
}

PlanSummary GradientSet::plan() const { return set_state_->summary(); }

std::uint64_t GradientSet::too_large() const { return set_state_->too_large(); }

}  // namespace kolo
