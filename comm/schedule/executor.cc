#include "comm/schedule/executor.h"

#include <algorithm>

#include <fmt/format.h>

#include "comm/base/check.h"
#include "comm/base/contains.h"
#include "comm/base/log.h"
#include "comm/schedule/executor_run.h"

namespace kolo {
namespace {

static_assert(kMaxBuckets < BucketId{1} << kTagBucketBits);

/// Limit of the bytes that kernels of one bucket write in one poll, per thread.
constexpr std::size_t kKernelBytesPerPoll = std::size_t{1} << 20;

}  // namespace

Executor::Executor(Transport& transport, DeviceStreams* streams, ReduceTeam* team)
    : transport_(transport),
      streams_(streams),
      team_(team),
      threads_(team != nullptr ? team->size() : 1) {}
Executor::~Executor() = default;

void Executor::add(Schedule schedule, Binding binding) {
  const BucketId bucket = binding.bucket;
  ensure(bucket < kMaxBuckets, "too many buckets for the message tag");
  const bool on_device = schedule.layout.is_on_device();
  check(!on_device || streams_ != nullptr,
        "device memory without a device; see the option `device`");
  if (runs_.size() <= bucket) runs_.resize(bucket + 1);
  ensure(!runs_[bucket], "bucket added twice");
  runs_[bucket] = std::make_unique<Run>(std::move(schedule), std::move(binding), transport_,
                                        on_device ? streams_ : nullptr, threads_, pause_);
  reserve_pieces(runs_[bucket]->schedule);
  active_.reserve(runs_.size());
  revoking_.reserve(runs_.size());
  for (auto* buckets : {&finished_, &taken_finished_, &enqueued_, &taken_enqueued_}) {
    buckets->reserve(runs_.size());
  }
}

/// Reserves memory for all pieces that one call of `compute_next` can make.
void Executor::reserve_pieces(const Schedule& schedule) {
  std::size_t most_moved = 0;
  for (const Step& step : schedule.steps) {
    most_moved = std::max(most_moved,
                          moved_bytes({.step = &step, .count = threads_ * kKernelBytesPerPoll}, 1));
  }
  computed_.reserve(std::max(computed_.capacity(), schedule.steps.size()));
  pieces_.reserve(
      std::max(pieces_.capacity(), most_moved / (kPieceBytes / 2) + schedule.steps.size()));
}

void Executor::set_input(BucketId bucket, std::size_t index, const Event* event) {
  runs_.at(bucket)->binding.inputs.at(index) = event;
}

std::byte* Executor::bucket_memory(BucketId bucket) {
  Run& run = *runs_.at(bucket);
  return address(run, {.rank = transport_.rank(), .region = Region::kBucket});
}

const Event& Executor::finished_event(BucketId bucket) const {
  return *runs_.at(bucket)->device->finished;
}

std::size_t Executor::network_bytes(BucketId bucket) const {
  return runs_.at(bucket)->network_bytes;
}

void Executor::remove(BucketId bucket) {
  const Run& run = *runs_.at(bucket);
  ensure(!run.running && !is_revoking(bucket), "removed a running bucket");
  ensure(!run.abandoned || !has_messages(run.schedule),
         "removed an abandoned bucket whose messages may be under way");
  runs_[bucket].reset();
}

void Executor::start(BucketId bucket, std::uint64_t iteration) {
  Run& run = *runs_.at(bucket);
  ensure(!run.running && !run.abandoned, "bucket started twice");
  run.running = true;
  run.iteration = iteration;
  run.network_bytes = 0;
  run.kernel_progress = 0;
  if (run.host) run.host->begin(iteration);
  if (run.device) streams_->begin(*run.device, iteration);
  run.progress.begin();
  active_.push_back(&run);
  if (run.device && run.progress.is_enqueued()) seal(run);
}

void Executor::abandon(BucketId bucket) {
  Run& run = *runs_.at(bucket);
  ensure(run.running && run.host.has_value(), "abandoned a bucket that is not running");
  std::erase(active_, &run);
  run.running = false;
  run.abandoned = true;
  run.pending.clear();
  revoke(run);
}

void Executor::revoke(Run& run) {
  run.host->revoke_exposures();
  if (!run.host->is_revoked()) revoking_.push_back(&run);
}

bool Executor::is_revoking(BucketId bucket) const {
  return contains(revoking_, runs_.at(bucket).get());
}

bool Executor::poll_revoking() {
  std::erase_if(revoking_, [](Run* run) { return run->host->is_revoked(); });
  return revoking_.empty();
}

void Executor::forget_writers() {
  for (const Run* run : revoking_) {
    log::warn(fmt::format(
        "a peer was stopped while it wrote results of bucket '{}' to this rank, and will go on "
        "writing if it wakes up",
        run->binding.name));
  }
  revoking_.clear();
}

bool Executor::poll() {
  bool moved = !revoking_.empty() && poll_revoking();
  if (streams_ != nullptr) {
    for (const DeviceStreams::Completed& completed : streams_->poll()) {
      Run& run = *runs_[completed.bucket];
      if (completed.step) {
        run.progress.complete(*completed.step);
      } else {
        run.progress.complete_end();
      }
      moved = true;
    }
  }
  for (Run* run : active_) moved |= advance(*run);
  moved |= std::erase_if(active_, [this](Run* run) {
             if (!run->finish()) return false;
             run->running = false;
             ++run->iteration;
             finished_.push_back(run->binding.bucket);
             return true;
           }) > 0;
  return moved;
}

std::span<const BucketId> Executor::take_finished() {
  taken_finished_.clear();
  std::swap(taken_finished_, finished_);
  return taken_finished_;
}

std::span<const BucketId> Executor::take_enqueued() {
  taken_enqueued_.clear();
  std::swap(taken_enqueued_, enqueued_);
  return taken_enqueued_;
}

bool Executor::device_busy() const {
  return (streams_ != nullptr && streams_->busy()) ||
         std::ranges::any_of(active_, &Run::is_copying);
}

bool Executor::advance(Run& run) {
  if (run.binding.bounce_buffer != nullptr && !run.binding.bounce_buffer->is_full()) return false;
  bool moved = false;
  std::size_t bytes = 0;
  // If peers' messages and flags are already here, this loop completes a small bucket in one call.
  for (bool goes_on = true; goes_on; moved |= goes_on) {
    goes_on = complete_pending(run);
    goes_on |= issue_ready(run);
    while (bytes < threads_ * kKernelBytesPerPoll && !run.progress.kernels.empty()) {
      bytes += compute_next(run);
      complete_pending(run);
      issue_ready(run);
      goes_on = true;
    }
  }
  if (run.device) moved |= enqueue_ready(run);
  return moved;
}

bool Executor::enqueue_ready(Run& run) {
  bool moved = false;
  while (run.waiting_native || !run.progress.launches.empty()) {
    const bool is_waiting = run.progress.launches.empty();
    const StepId id = is_waiting ? *run.waiting_native : run.progress.launches.pop();
    if (!streams_->enqueue(*run.device, id)) {
      // Native steps of a bucket run in order, so at most one of them waits to be launched.
      run.waiting_native = id;
      if (is_waiting) break;
      continue;
    }
    if (is_waiting) run.waiting_native.reset();
    run.progress.enqueue(id, run.device->steps[id].is_tracked);
    if (run.progress.is_enqueued()) seal(run);
    moved = true;
  }
  return moved;
}

void Executor::seal(Run& run) {
  streams_->seal(*run.device);
  enqueued_.push_back(run.binding.bucket);
}

bool Executor::is_raised(const Run& run, const Step& await) const {
  const std::uint64_t raised =
      transport_.signalled(await.peer, run.binding.first_flag + await.ordinal);
  return raised + await.lag > run.binding.flag_base + run.iteration ||
         run.iteration < run.binding.first_iteration + await.lag;
}

bool Executor::complete_pending(Run& run) {
  bool moved = false;
  for (std::size_t i = 0; i < run.pending.size();) {
    const StepId id = run.pending[i];
    const Step& step = run.schedule.steps[id];
    const bool waits = step.kind == StepKind::kAwait
                           ? !is_raised(run, step)
                           : run.completions[id].state != Completion::State::kDone;
    if (waits) {
      ++i;
      continue;
    }
    run.pending[i] = run.pending.back();
    run.pending.pop_back();
    run.progress.complete(id);
    moved = true;
  }
  return moved;
}

bool Executor::issue_ready(Run& run) {
  bool any = false;
  while (!run.progress.messages.empty()) {
    issue(run, run.progress.messages.pop());
    any = true;
  }
  return any;
}

void Executor::issue(Run& run, StepId id) {
  const Step& step = run.schedule.steps[id];
  const auto tag_from = [&](int source) {
    return Tag{.source = static_cast<std::uint32_t>(source),
               .bucket = run.binding.bucket,
               .iteration = static_cast<std::uint32_t>(run.iteration),
               .ordinal = step.ordinal};
  };
  switch (step.kind) {
    case StepKind::kSend: {
      std::span<const std::byte> message = memory(run, step.sources[0]);
      if (step.sources[0].region == Region::kPayload) {
        message = message.first(used_payload_bytes(message));
      }
      if (!transport_.is_mapped(step.peer)) run.network_bytes += message.size();
      transport_.isend(step.peer, tag_from(transport_.rank()), message, run.completions[id]);
      run.pending.push_back(id);
      break;
    }
    case StepKind::kRecv:
      transport_.irecv(step.peer, tag_from(step.peer), memory(run, step.target),
                       run.completions[id]);
      run.pending.push_back(id);
      break;
    case StepKind::kSignal:
      transport_.signal(step.peer, run.binding.first_flag + step.ordinal,
                        run.binding.flag_base + run.iteration + 1);
      run.progress.complete(id);
      break;
    case StepKind::kAwait:
      run.pending.push_back(id);
      break;
    case StepKind::kExpose:
      run.host->expose_result(step);
      run.progress.complete(id);
      break;
    default:  // kernels, and steps on a device
      break;
  }
}

// Ready kernels do not depend on each other, so a team runs several concurrently. Without a team,
// each call runs only one kernel, so that the sends and signals after it, which peers wait for, are
// not delayed by the next kernel.
std::size_t Executor::compute_next(Run& run) {
  const std::size_t limit = threads_ * kKernelBytesPerPoll / run.element_bytes;
  std::size_t written = 0;  // in elements
  pieces_.clear();
  computed_.clear();
  do {
    const Step& step = run.schedule.steps[run.progress.kernels.front()];
    if (step.kind == StepKind::kCodec) {
      if (!computed_.empty()) break;
      return run_codec(run);
    }
    const std::size_t first = run.kernel_progress;
    const std::size_t count = std::min(step.target.count - first, limit - written);
    const KernelPiece part{&step, first, count};
    if (first == 0 && step.target.region == Region::kExposedInput) run.host->expose_input(step);
    if (threads_ > 1) {
      append_pieces(part, run.element_bytes, pieces_);
    } else {
      run.host->compute(part);
    }
    written += count;
    run.kernel_progress += count;
    if (run.kernel_progress < step.target.count) break;
    run.kernel_progress = 0;
    computed_.push_back(run.progress.kernels.pop());
  } while (threads_ > 1 && written < limit && !run.progress.kernels.empty());
  compute_pieces(run);
  for (StepId step : computed_) run.progress.complete(step);
  return written * run.element_bytes;
}

void Executor::compute_pieces(Run& run) {
  const auto is_worth_sharing = [&] {
    std::size_t bytes = 0;
    for (const KernelPiece& piece : pieces_) bytes += moved_bytes(piece, run.element_bytes);
    return bytes >= kLeastSharedBytes;
  };
  if (threads_ > 1 && is_worth_sharing()) {
    team_->run(pieces_.size(), [&](std::size_t piece, std::size_t thread) {
      run.host->compute(pieces_[piece], thread);
    });
  } else {
    for (const KernelPiece& piece : pieces_) run.host->compute(piece);
  }
}

std::size_t Executor::run_codec(Run& run) {
  const Step& step = run.schedule.steps[run.progress.kernels.front()];
  run.codec.run(step, run.host ? run.host->elements(CodecRun::elements_of(step)) : CodecElements{});
  run.progress.complete(run.progress.kernels.pop());
  return step.target.count * run.element_bytes;
}

std::byte* Executor::address(Run& run, const Range& range) {
  return run.device ? run.device->address(range) : run.host->address(range);
}

std::span<std::byte> Executor::memory(Run& run, const Range& range) {
  if (range.region == Region::kPayload) return run.codec.payload(range);
  return {address(run, range), range.count * run.element_bytes};
}

std::string Executor::describe_wait() const {
  if (active_.empty() && !revoking_.empty()) {
    return fmt::format("peers that write results of bucket '{}'", revoking_.front()->binding.name);
  }
  if (active_.empty()) return "nothing";
  const Run& run = *active_.front();
  std::string text = fmt::format("bucket '{}' iteration {}:", run.binding.name, run.iteration);
  if (run.waiting_native) {
    text += fmt::format(" the turn of native step {};",
                        run.schedule.steps[*run.waiting_native].ordinal);
  } else if (run.device && run.progress.is_enqueued() && run.pending.empty()) {
    text += " the device;";
  } else if (run.is_copying()) {
    text += " copies of the device;";
  }
  for (StepId id : run.pending) {
    const Step& step = run.schedule.steps[id];
    text += fmt::format(" {} {} {} rank {};", to_string(step.kind), step.ordinal,
                        step.kind == StepKind::kSend ? "to" : "from", step.peer);
  }
  return text;
}

void Executor::append_awaited_peers(std::vector<int>& peers) const {
  for (const Run* run : active_) {
    for (StepId id : run->pending) {
      peers.push_back(run->schedule.steps[id].peer);
    }
    if (!run->native_group) continue;
    const int peer = streams_->watched_peer(*run->native_group);
    if (peer >= 0) peers.push_back(peer);
  }
}

bool Executor::has_messages_in_flight() const {
  return std::ranges::any_of(active_, [&](const Run* run) {
    return std::ranges::any_of(run->pending, [&](StepId id) {
      const Step& step = run->schedule.steps[id];
      return step.kind != StepKind::kAwait && !transport_.is_mapped(step.peer);
    });
  });
}

bool Executor::let_go() {
  bool has_let_go = streams_ == nullptr || streams_->let_go();
  for (const auto& run : runs_) {
    if (!run) continue;
    if (run->device) has_let_go &= run->device->let_go(transport_);
    for (Completion& message : run->completions) has_let_go &= transport_.cancel(message);
  }
  return has_let_go;
}

void Executor::cancel() {
  for (const auto& run : runs_) {
    // A bucket without messages abandons nothing: `shutdown` still has to report unreceived
    // messages of an earlier bucket with the same id.
    if (!run || !has_messages(run->schedule)) continue;
    transport_.abandon(
        {.bucket = run->binding.bucket, .iteration = static_cast<std::uint32_t>(run->iteration)});
  }
  for (Run* run : active_) {
    run->running = false;
    run->pending.clear();
    run->waiting_native.reset();
    if (run->host) revoke(*run);
  }
  active_.clear();
  finished_.clear();
  enqueued_.clear();
}

}  // namespace kolo
