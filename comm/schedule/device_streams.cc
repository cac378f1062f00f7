#include "comm/schedule/device_streams.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "comm/base/check.h"
#include "comm/schedule/codec_run.h"

namespace kolo {
namespace {

/// Ordinal of the message with the unique id; schedules and LaunchOrder use smaller ordinals.
constexpr std::uint32_t kUniqueId = (std::uint32_t{1} << kTagOrdinalBits) - 1;

}  // namespace

void LazyCommunicator::expect(BucketId bucket, std::uint64_t iteration) {
  if (state_ != State::kIdle) return;
  state_ = State::kExpected;
  tag_ = {.source = 0,
          .bucket = bucket,
          .iteration = static_cast<std::uint32_t>(iteration),
          .ordinal = kUniqueId};
}

void LazyCommunicator::start() {
  if (std::exchange(is_started_, true) || state_ != State::kExpected) return;
  if (!is_first()) {
    unique_id_.resize(connector_.unique_id_bytes());
    messages_.resize(1);
    return transport_.irecv(0, tag_, unique_id_, messages_.front());
  }
  unique_id_ = connector_.make_unique_id();
  messages_.resize(static_cast<std::size_t>(transport_.world_size()) - 1);
  for (int peer = 1; peer < transport_.world_size(); ++peer) {
    transport_.isend(peer, tag_, unique_id_, messages_[static_cast<std::size_t>(peer) - 1]);
  }
}

std::unique_ptr<DeviceCommunicator> LazyCommunicator::poll() {
  if (state_ == State::kExpected) {
    const bool is_here = is_first() || messages_.front().state == Completion::State::kDone;
    if (!is_here) return nullptr;
    connecting_ = connector_.connect(unique_id_, transport_.rank(), transport_.world_size());
    state_ = State::kConnecting;
  }
  if (state_ != State::kConnecting) return nullptr;
  std::unique_ptr<DeviceCommunicator> group = connecting_->poll();
  if (group) {
    connecting_.reset();
    state_ = State::kOver;
  }
  return group;
}

void LazyCommunicator::give_up() {
  connecting_.reset();
  state_ = State::kOver;
}

bool LazyCommunicator::let_go() {
  bool has_let_go = true;
  for (Completion& message : messages_) has_let_go &= transport_.cancel(message);
  return has_let_go;
}

namespace {

/// `async_error` takes a lock in the device library, so most polls do not call it.
constexpr unsigned kPollsPerGroupCheck = 32;

/// Returns the rank after `rank` in `ranks`, cyclically; -1 if there is no other rank.
int next_of(const std::vector<int>& ranks, int rank) {
  if (ranks.size() < 2) return -1;
  const auto next = std::next(std::find(ranks.begin(), ranks.end(), rank));
  return next == ranks.end() ? ranks.front() : *next;
}

template <typename Streams>
void make_missing(Streams& streams, Device& device, std::size_t lines) {
  for (std::size_t line = 0; line < lines; ++line) {
    if (!streams[line]) streams[line] = device.make_stream();
  }
}

}  // namespace

void DeviceStreams::PendingQueue::pop() {
  ++first_;
  // Moves items to the front once half of the memory is free, so that a queue that never becomes
  // empty does not grow.
  if (first_ * 2 >= items_.size()) {
    items_.erase(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(first_));
    first_ = 0;
  }
}

void DeviceStreams::PendingQueue::clear() {
  items_.clear();
  first_ = 0;
}

DeviceStreams::DeviceStreams(Transport& transport, const ProcessGrid& grid,
                             const DeviceAccess& access)
    : access_(access),
      rank_(transport.rank()),
      order_(transport, grid),
      next_in_node_(next_of(grid.ranks_of_node(grid.node(transport.rank())), transport.rank())),
      next_in_world_(grid.world_size() > 1 ? (transport.rank() + 1) % grid.world_size() : -1) {
  for (DeviceCommunicator* group : {access_.node, access_.world}) {
    if (group != nullptr && !std::ranges::count(groups_, group)) groups_.push_back(group);
  }
  if (access_.world == nullptr && access_.connector != nullptr) {
    late_world_.emplace(transport, *access_.connector);
  }
}

DeviceStreams::~DeviceStreams() = default;

Stream& DeviceStreams::stream(DeviceLine line) { return *streams_[static_cast<std::size_t>(line)]; }

std::unique_ptr<DeviceRun> DeviceStreams::prepare(const Schedule& schedule,
                                                  const Binding& binding) {
  // A device has few hardware queues; see comm/device/README.md.
  make_missing(streams_, access_.device, schedule.staging_count > 0 ? kDeviceLines : kBasicLines);
  for (const Step& step : schedule.steps) {
    if (step.kind != StepKind::kNative) continue;
    const bool has_group = step.group == NativeGroup::kNode ? has_node_group() : has_world_group();
    ensure(has_group, "a native step without a group");
    if (late_world_) late_world_->expect(binding.bucket, binding.first_iteration);
  }
  return std::make_unique<DeviceRun>(access_, schedule, binding);
}

void DeviceStreams::begin(DeviceRun& run, std::uint64_t iteration) {
  run.iteration = iteration;
  bool is_native = false;
  for (DeviceRun::OnDevice& step : run.steps) {
    if (!step.launch) continue;
    order_.begin(*step.launch, iteration);
    is_native = true;
  }
  try {
    if (late_world_ && is_native) late_world_->start();
    if (!run.inputs_ready) return;
    for (const Event* input : run.binding.inputs) {
      if (input != nullptr) stream(DeviceLine::kPacks).wait(*input);
    }
    stream(DeviceLine::kPacks).record(*run.inputs_ready);
  } catch (const KoloError& error) {
    keep(error.error());
  }
}

bool DeviceStreams::enqueue(DeviceRun& run, StepId id) {
  DeviceRun::OnDevice& state = run.steps[id];
  const bool has_begun = launching_ == &state;
  DeviceCommunicator* const group = state.launch ? group_of(run.schedule.steps[id]) : nullptr;
  if (state.launch && !has_begun &&
      (launching_ != nullptr || group == nullptr ||
       !order_.take_turn(*state.launch, run.iteration))) {
    return false;
  }
  try {
    Stream& on = stream(state.line);
    if (!has_begun) {
      for (const Event* event : state.waits) on.wait(*event);
      if (state.waits_for_inputs && state.line != DeviceLine::kPacks) on.wait(*run.inputs_ready);
      launch(run, id, on);
    }
    if (group != nullptr) {
      launching_ = group->is_launching() ? &state : nullptr;
      if (launching_ != nullptr) return false;
      // The events after a refused call are done at once, so its failure must be known before.
      if (const auto error = group->async_error()) keep(*error);
    }
    if (state.event) on.record(*state.event);
    if (state.is_tracked) {
      pending_[static_cast<std::size_t>(state.line)].push({state.event.get(), &run, id});
    }
  } catch (const KoloError& error) {
    keep(error.error());
  }
  return true;
}

void DeviceStreams::launch(DeviceRun& run, StepId id, Stream& on) {
  const BucketLayout& layout = run.schedule.layout;
  const Step& step = run.schedule.steps[id];
  switch (step.kind) {
    case StepKind::kPack:
      run.binding.stream_packer->pack(on, step.sources[0].offset, step.sources[0].count,
                                      run.address(step.target));
      break;
    case StepKind::kUnpack:
      run.binding.stream_packer->unpack(on, step.target.offset, step.target.count,
                                        run.address(step.sources[0]));
      break;
    case StepKind::kCopy:
      on.copy(run.view(step.target), run.view(step.sources[0]));
      break;
    case StepKind::kReduce:
      run.source_addresses.clear();
      for (const Range& range : step.sources) run.source_addresses.push_back(run.address(range));
      access_.device.kernels().reduce(on, layout.dtype, layout.op, run.address(step.target),
                                      run.source_addresses, step.target.count,
                                      step.finishes ? run.kernel_scale() : 1.0);
      break;
    case StepKind::kNative:
      launch_native(run, step, run.steps[id].parts, on);
      break;
    case StepKind::kCodec:
      launch_codec(run, step, on);
      break;
    default:
      break;
  }
}

void DeviceStreams::launch_codec(DeviceRun& run, const Step& step, Stream& on) {
  const CodecElements elements = run.elements(CodecRun::elements_of(step));
  Codec& codec = *run.binding.codec;
  switch (step.verb) {
    case CodecVerb::kFold:
      return codec.fold(on, elements);
    case CodecVerb::kSelect:
      return codec.select(on, elements);
    case CodecVerb::kScatter:
      return codec.scatter(on, elements);
    case CodecVerb::kInspect:
      return codec.inspect(on, elements);
    default:
      break;
  }
}

void DeviceStreams::launch_native(DeviceRun& run, const Step& step, DeviceRun::Parts& parts,
                                  Stream& on) {
  DeviceCommunicator* const group = group_of(step);
  const DType dtype = run.schedule.layout.dtype;
  // A step that does not finish an average only sums.
  const ReduceOp op = run.schedule.layout.op == ReduceOp::kAverage && !step.finishes
                          ? ReduceOp::kSum
                          : run.schedule.layout.op;
  const auto at = [&](const Range& range) { return run.address(range); };
  run.point(step, parts);
  switch (step.native) {
    case NativeOp::kReduceScatter:
      group->reduce_scatter(on, at(step.sources[0]), at(step.target), step.target.count, dtype, op);
      break;
    case NativeOp::kAllGather:
      group->all_gather(on, at(step.sources[0]), at(step.target), step.sources[0].count, dtype);
      break;
    case NativeOp::kAllReduce:
      group->all_reduce(on, at(step.sources[0]), at(step.target), step.target.count, dtype, op);
      break;
    case NativeOp::kReduceParts:
      group->reduce_parts(on, parts.tensors, dtype, op);
      break;
    case NativeOp::kGatherParts:
      group->gather_parts(on, parts.tensors, dtype);
      break;
    case NativeOp::kExchange:
      group->exchange(on, parts.sent, parts.received, dtype);
      break;
  }
}

void DeviceStreams::seal(DeviceRun& run) {
  try {
    Stream& end = stream(DeviceLine::kKernels);
    if (run.ends.empty() && run.inputs_ready) end.wait(*run.inputs_ready);
    for (const Event* event : run.ends) end.wait(*event);
    end.record(*run.finished);
    pending_[static_cast<std::size_t>(DeviceLine::kKernels)].push(
        {run.finished.get(), &run, std::nullopt});
  } catch (const KoloError& error) {
    keep(error.error());
  }
}

std::span<const DeviceStreams::Completed> DeviceStreams::poll() {
  completed_.clear();
  if (failure_) return completed_;
  check_groups();
  try {
    connect_world();
    for (PendingQueue& queue : pending_) {
      while (!queue.empty() && queue.front().event->done()) {
        const Pending& front = queue.front();
        if (!front.step && front.run->has_turns_under_way()) break;
        completed_.push_back({front.run->binding.bucket, front.step});
        queue.pop();
      }
    }
  } catch (const KoloError& error) {
    keep(error.error());
  }
  return completed_;
}

void DeviceStreams::connect_world() {
  if (!late_world_ || !late_world_->is_busy()) return;
  own_world_ = late_world_->poll();
  if (!own_world_) return;
  access_.world = own_world_.get();
  groups_.push_back(access_.world);
}

void DeviceStreams::check_groups() {
  if (polls_++ % kPollsPerGroupCheck != 0) return;
  for (DeviceCommunicator* group : groups_) {
    if (const auto error = group->async_error()) keep(*error);
  }
}

bool DeviceStreams::busy() const {
  return launching_ != nullptr || (late_world_ && late_world_->is_busy()) ||
         std::any_of(pending_.begin(), pending_.end(),
                     [](const PendingQueue& queue) { return !queue.empty(); });
}

bool DeviceStreams::abort() {
  if (late_world_) late_world_->give_up();
  launching_ = nullptr;
  for (PendingQueue& queue : pending_) queue.clear();
  bool are_over = true;
  for (DeviceCommunicator* group : groups_) are_over &= group->abort(std::chrono::milliseconds(0));
  return are_over;
}

bool DeviceStreams::finalize() {
  bool over = true;
  for (DeviceCommunicator* group : groups_) {
    const CommunicatorState state = group->finalize();
    over &= state == CommunicatorState::kFinalized ||
            (state == CommunicatorState::kAborted && group->abort(std::chrono::milliseconds(0)));
  }
  return over;
}

void DeviceStreams::keep(Error error) {
  if (failure_) return;
  error.rank = rank_;
  error.verb = "run";
  failure_ = std::move(error);
}

}  // namespace kolo
