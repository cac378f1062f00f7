#include "comm/schedule/device_run.h"

#include <algorithm>

namespace kolo {
namespace {

DeviceLine line_of(const Step& step) {
  switch (step.kind) {
    case StepKind::kPack:
      return DeviceLine::kPacks;
    case StepKind::kNative:
      return DeviceLine::kCollectives;
    case StepKind::kCopy:
      if (step.target.region == Region::kStaging) return DeviceLine::kDown;
      if (step.sources[0].region == Region::kStaging) return DeviceLine::kUp;
      return DeviceLine::kKernels;
    default:
      return DeviceLine::kKernels;
  }
}

DeviceRun::Parts parts_of(const Step& step) {
  DeviceRun::Parts parts;
  if (!has_parts(step.native)) return parts;
  if (step.native == NativeOp::kExchange) {
    for (const Range& range : step.sources) parts.sent.push_back({.count = range.count});
    for (const Range& range : step.mirrors) parts.received.push_back({.count = range.count});
    return parts;
  }
  const bool gathers = step.native == NativeOp::kGatherParts;
  for (const Range& range : gathers ? step.mirrors : step.sources) {
    parts.counts.push_back(range.count);
  }
  const std::size_t tensors = gathers ? step.sources.size() : step.mirrors.size();
  const std::size_t ranks = parts.counts.size() / tensors;
  for (std::size_t i = 0; i < tensors; ++i) {
    parts.tensors.push_back({.counts = std::span(parts.counts).subspan(i * ranks, ranks)});
  }
  return parts;
}

/// Returns the group of the schedule's native steps; null if there are none, or before it connects.
DeviceCommunicator* moving_group(const Schedule& schedule, const DeviceAccess& access) {
  const auto native = std::ranges::find(schedule.steps, StepKind::kNative, &Step::kind);
  if (native == schedule.steps.end()) return nullptr;
  return native->group == NativeGroup::kNode ? access.node : access.world;
}

}  // namespace

bool DeviceRun::runs(const Schedule& schedule, const Step& step) {
  if (schedule.layout.memory != MemoryKind::kDevice) return false;
  switch (step.kind) {
    case StepKind::kReduce:
    case StepKind::kCopy:
    case StepKind::kPack:
    case StepKind::kUnpack:
    case StepKind::kNative:
      return true;
    case StepKind::kCodec:
      return works_on_elements(step.verb);
    case StepKind::kSend:
    case StepKind::kRecv:
    case StepKind::kSignal:
    case StepKind::kAwait:
    case StepKind::kExpose:
    case StepKind::kExchange:
      return false;
  }
  return false;
}

DeviceRun::DeviceRun(const DeviceAccess& access, const Schedule& of, const Binding& at)
    : schedule(of), binding(at), steps(of.steps.size()) {
  allocate(access);
  link_steps(access.device);
}

void DeviceRun::allocate(const DeviceAccess& access) {
  Device& device = access.device;
  const auto bytes = [&](std::size_t count) { return count * size_of(schedule.layout.dtype); };
  DeviceCommunicator* const group = moving_group(schedule, access);
  if (schedule.has_bucket) {
    bucket_ = group != nullptr ? group->allocate(bytes(schedule.layout.count))
                               : device.allocate(bytes(schedule.layout.count), MemoryKind::kDevice);
    bucket_.leak_if(device.stuck());
  }
  if (schedule.scratch_count > 0) {
    scratch_ = device.allocate(bytes(schedule.scratch_count), MemoryKind::kDevice);
  }
  if (schedule.staging_count > 0) {
    staging_ = device.allocate(bytes(schedule.staging_count), MemoryKind::kPinned);
  }
  if (!binding.inputs.empty()) inputs_ready = device.make_event();
  finished = device.make_event();
}

void DeviceRun::link_steps(Device& device) {
  std::vector<bool> is_followed(steps.size());
  const auto event_of = [&](StepId id) -> const Event* {
    if (!steps[id].event) steps[id].event = device.make_event();
    return steps[id].event.get();
  };
  std::size_t most_sources = 0;
  for (StepId id = 0; id < steps.size(); ++id) {
    const Step& step = schedule.steps[id];
    const bool is_here = runs(schedule, step);
    OnDevice& state = steps[id];
    state.line = line_of(step);
    state.waits_for_inputs = is_here && inputs_ready != nullptr;
    if (step.kind == StepKind::kNative) {
      state.launch.emplace(step, binding.bucket, binding.first_flag);
      state.parts = parts_of(step);
    }
    most_sources = std::max(most_sources, step.sources.size());
    for (StepId earlier : step.after) {
      is_followed[earlier] = true;
      if (!runs(schedule, schedule.steps[earlier])) continue;
      if (!is_here) {
        steps[earlier].is_tracked = true;
        event_of(earlier);
        continue;
      }
      state.waits_for_inputs = false;
      if (steps[earlier].line != state.line) state.waits.push_back(event_of(earlier));
    }
  }
  for (StepId id = 0; id < steps.size(); ++id) {
    if (!is_followed[id] && runs(schedule, schedule.steps[id])) ends.push_back(event_of(id));
  }
  source_addresses.reserve(most_sources);
}

std::byte* DeviceRun::address(const Range& range) const {
  if (range.region == Region::kUser || range.region == Region::kInput) {
    if (range.count == 0) return nullptr;
    const Packer::Piece piece = binding.packer->piece(range.offset, range.count);
    // The caller only reads contributions, so removing const is safe.
    return range.region == Region::kUser ? piece.data : const_cast<std::byte*>(piece.input);
  }
  const DeviceMemory& memory = range.region == Region::kBucket    ? bucket_
                               : range.region == Region::kScratch ? scratch_
                                                                  : staging_;
  return memory.data() + range.offset * size_of(schedule.layout.dtype);
}

std::byte* DeviceRun::first_address(std::span<const Range> ranges) const {
  for (const Range& range : ranges) {
    if (range.count > 0) return address(range);
  }
  return nullptr;
}

void DeviceRun::point(const Step& step, Parts& parts) const {
  for (std::size_t i = 0; i < parts.sent.size(); ++i) {
    parts.sent[i].data = address(step.sources[i]);
    parts.received[i].data = address(step.mirrors[i]);
  }
  const bool gathers = step.native == NativeOp::kGatherParts;
  const std::span<const Range> all = gathers ? step.mirrors : step.sources;
  for (std::size_t i = 0; i < parts.tensors.size(); ++i) {
    GroupTensor& tensor = parts.tensors[i];
    const std::size_t ranks = tensor.counts.size();
    std::byte* const whole = first_address(all.subspan(i * ranks, ranks));
    std::byte* const part = address(gathers ? step.sources[i] : step.mirrors[i]);
    tensor.source = gathers ? part : whole;
    tensor.target = gathers ? whole : part;
  }
}

BufferView DeviceRun::view(const Range& range) const {
  return {address(range), range.count, schedule.layout.dtype,
          range.region == Region::kStaging ? MemoryKind::kPinned : MemoryKind::kDevice};
}

CodecElements DeviceRun::elements(const Range& range) const {
  const bool is_user = range.region == Region::kUser;
  return {.data = is_user ? nullptr : address(range),
          .tensors = binding.packer.get(),
          .offset = range.offset,
          .count = range.count};
}

bool DeviceRun::has_turns_under_way() const {
  return std::any_of(steps.begin(), steps.end(), [](const OnDevice& step) {
    return step.launch && LaunchOrder::busy(*step.launch);
  });
}

bool DeviceRun::let_go(Transport& transport) {
  bool has_let_go = true;
  for (OnDevice& step : steps) {
    if (!step.launch) continue;
    for (Completion& turn : step.launch->turns) has_let_go &= transport.cancel(turn);
  }
  return has_let_go;
}

}  // namespace kolo
