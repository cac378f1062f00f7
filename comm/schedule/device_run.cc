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
    case StepKind::kSend:
    case StepKind::kRecv:
    case StepKind::kSignal:
    case StepKind::kAwait:
    case StepKind::kExchange:
    case StepKind::kCodec:
      return false;
  }
  return false;
}

DeviceRun::DeviceRun(DevicePlane& plane, const Schedule& of, const Binding& at)
    : schedule(of), binding(at), steps(of.steps.size()) {
  allocate(plane);
  link_steps(*plane.device);
}

void DeviceRun::allocate(DevicePlane& plane) {
  Device& device = *plane.device;
  const auto bytes = [&](std::size_t count) { return count * size_of(schedule.layout.dtype); };
  LocalGroup* const group = plane.node ? plane.node.get() : plane.world.get();
  bucket_ = group != nullptr ? group->allocate(bytes(schedule.layout.count))
                             : device.allocate(bytes(schedule.layout.count), MemoryKind::kDevice);
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
  const DeviceMemory& memory = range.region == Region::kBucket    ? bucket_
                               : range.region == Region::kScratch ? scratch_
                                                                  : staging_;
  return memory.data() + range.offset * size_of(schedule.layout.dtype);
}

BufferView DeviceRun::view(const Range& range) const {
  return {.data = address(range),
          .count = range.count,
          .dtype = schedule.layout.dtype,
          .memory = range.region == Region::kStaging ? MemoryKind::kPinned : MemoryKind::kDevice};
}

bool DeviceRun::has_turns_under_way() const {
  return std::any_of(steps.begin(), steps.end(), [](const OnDevice& step) {
    return step.launch && LaunchOrder::busy(*step.launch);
  });
}

}  // namespace kolo
