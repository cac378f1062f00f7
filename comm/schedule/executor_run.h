#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "comm/schedule/codec_run.h"
#include "comm/schedule/executor.h"
#include "comm/schedule/host_run.h"
#include "comm/schedule/step_progress.h"

namespace kolo {

/// A bucket, its memory and the progress of its current iteration. Threads: the executor's.
struct Executor::Run {
  Run(Schedule of, Binding at, Transport& transport, DeviceStreams* streams, std::size_t threads,
      const Pause& pause)
      : schedule(std::move(of)),
        binding(std::move(at)),
        progress(schedule),
        codec(schedule, binding),
        completions(schedule.steps.size()),
        iteration(binding.first_iteration),
        element_bytes(size_of(schedule.layout.dtype)) {
    pending.reserve(schedule.steps.size());
    for (const Step& step : schedule.steps) {
      if (step.kind == StepKind::kNative) native_group = step.group;
    }
    if (streams == nullptr) {
      host.emplace(transport, schedule, binding, threads, pause);
    } else {
      device = streams->prepare(schedule, binding);
    }
  }

  bool is_copying() const {
    return binding.bounce_buffer != nullptr && binding.bounce_buffer->is_copying();
  }
  /// Whether all steps are complete and the results are in the caller's tensors.
  bool finish() {
    return progress.is_complete() && (!binding.bounce_buffer || binding.bounce_buffer->drain());
  }

  Schedule schedule;
  Binding binding;
  StepProgress progress;
  CodecRun codec;
  std::optional<NativeGroup> native_group;  // empty without native steps
  std::optional<HostRun> host;              // set for a host bucket
  std::unique_ptr<DeviceRun> device;        // set for a device bucket
  std::vector<Completion> completions;      // of messages, by StepId
  std::size_t kernel_progress = 0;          // completed elements of the first ready kernel
  std::optional<StepId> waiting_native;     // ready, but other native steps come first
  std::vector<StepId> pending;              // started messages and flags
  std::uint64_t iteration;                  // current or next iteration
  bool running = false;
  bool abandoned = false;
  std::size_t element_bytes;
  std::size_t network_bytes = 0;  // bytes sent to other nodes in this iteration
};

}  // namespace kolo
