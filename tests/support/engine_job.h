#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "comm/base/clock.h"
#include "runtime/engine/engine.h"
#include "tests/support/calls/sized_tensor.h"
#include "tests/support/device/host_communicator.h"
#include "tests/support/device/host_device.h"
#include "tests/support/device/moved_buffers.h"
#include "tests/support/in_process_transport.h"
#include "tests/support/sanitized.h"
#include "tests/support/seeded_scheduler.h"

namespace kolo::test {

/// Options for the devices of the ranks of an `EngineJob`.
struct JobDevices {
  /// Whether `MovedBuffers` turns operations on host memory into operations on device memory.
  bool holds_buffers = false;
  /// If set, wraps each group of a rank's device. `members` names the group: "node 0" or "world".
  using Wrap = std::function<std::unique_ptr<DeviceCommunicator>(
      int rank, const std::string& members, std::unique_ptr<DeviceCommunicator> group)>;
  Wrap wrap = {};
};

/// Returns the devices for a test that moves its host operations to `memory`; empty for host
/// memory.
inline std::optional<JobDevices> devices_for(MemoryKind memory) {
  if (memory == MemoryKind::kHost) return std::nullopt;
  return JobDevices{.holds_buffers = true};
}

/// Selects hierarchical all-reduces between nodes, as in device memory.
inline Options by_hierarchies(Options options = {}) {
  options.algorithm = "hierarchical:native,direct";
  return options;
}

/// Optional wrappers of the transports, engines and options of an `EngineJob`.
struct JobWraps {
  bool opens_memory = false;  ///< Whether to call `InProcessHub::open_memory`.
  std::function<std::unique_ptr<Transport>(int rank, std::unique_ptr<Transport>)> transport = {};
  std::function<bool(int rank, Engine&)> poll = {};
  std::function<Options(int rank, Options)> options = {};
};

/// The engines of all ranks of a job in one thread. A seeded scheduler selects the engine that
/// polls next, or the device whose next operation runs. Time advances only when a test advances it.
class EngineJob {
 public:
  EngineJob(ProcessGrid grid, Options options, std::uint64_t seed,
            const std::optional<JobDevices>& devices = std::nullopt, const JobWraps& wraps = {})
      : hub_(std::move(grid), kLimits) {
    if (kSanitized) options.verify_schedules = false;  // The Release build proves the same.
    if (wraps.opens_memory) hub_.open_memory();
    if (devices) make_device_contexts(seed, *devices);
    if (devices && devices->holds_buffers) moved_ = std::make_unique<MovedBuffers>(heap_);
    const Calibration calibration{.costs = parse_link_costs(options.link_costs), .source = {}};
    std::vector<SeededScheduler::Pollable> pollables;
    for (int rank = 0; rank < hub_.grid().world_size(); ++rank) {
      transports_.push_back(hub_.transport(rank));
      if (wraps.transport) {
        transports_.back() = wraps.transport(rank, std::move(transports_.back()));
      }
      engines_.push_back(std::make_unique<Engine>(
          *transports_.back(), hub_.grid(), EngineClocks{clock_, clock_},
          wraps.options ? wraps.options(rank, options) : options, calibration, kLimits,
          devices ? &device_context(rank) : nullptr));
      pollables.push_back([this, rank, engine = engines_.back().get(), poll = wraps.poll] {
        const ClosedDeviceHeap closed(heap_);
        return poll ? poll(rank, *engine) : engine->poll();
      });
      if (devices) pollables.push_back([device = &this->device(rank)] { return device->step(); });
    }
    scheduler_ = std::make_unique<SeededScheduler>(seed, std::move(pollables));
  }

  /// Shuts the transports down, which ends operations in flight before the engines are destroyed.
  ~EngineJob() {
    for (const auto& transport : transports_) transport->shutdown(false);
  }
  EngineJob(const EngineJob&) = delete;
  EngineJob& operator=(const EngineJob&) = delete;

  int world_size() const { return hub_.grid().world_size(); }
  const ProcessGrid& grid() const { return hub_.grid(); }
  Engine& engine(int rank) { return *engines_[static_cast<std::size_t>(rank)]; }
  SeededHostDevice& device(int rank) {
    return static_cast<SeededHostDevice&>(*device_context(rank).device);
  }
  Transport& transport(int rank) { return *transports_[static_cast<std::size_t>(rank)]; }
  ManualClock& clock() { return clock_; }

  /// Polls in random order until `done` returns true. The clock advances every `kStepsPerTick`
  /// polls.
  void run_until(const std::function<bool()>& done, Duration tick = Duration(0)) {
    std::size_t steps = 0;
    try {
      scheduler_->run_until([&] {
        if (++steps % kStepsPerTick == 0) clock_.advance(tick);
        return done();
      });
    } catch (const std::runtime_error& e) {
      std::string text = e.what();
      for (const auto& engine : engines_) text += "\n  waits for: " + engine->describe_wait();
      throw std::runtime_error(text);
    }
  }

  std::shared_ptr<Operation> submit(int rank, Operation operation) {
    auto shared = std::make_shared<Operation>(std::move(operation));
    if (moved_ && shared->kind != OperationKind::kBarrier &&
        shared->kind != OperationKind::kClose) {
      moved_->move(*shared, rank, world_size(), device(rank), stream(rank));
    }
    engine(rank).submit(shared);
    return shared;
  }

  /// Submits a message. It is complete when `is_over` returns true. If the job holds buffers, every
  /// third message stays in host memory.
  void submit(int rank, const std::shared_ptr<Message>& message, std::function<bool()> is_over) {
    if (moved_ && messages_++ % 3 != 0) {
      moved_->move(*message, std::move(is_over), device(rank), stream(rank));
    }
    engine(rank).submit(message);
  }

  /// Polls `polls` times.
  void poll(std::size_t polls) {
    std::size_t done = 0;
    scheduler_->run_until([&] { return done++ == polls; });
  }

  /// Polls until no rank has work left.
  void run_until_idle(Duration tick = Duration(0)) {
    run_until(
        [&] {
          return std::ranges::all_of(engines_, [](const auto& engine) { return engine->idle(); });
        },
        tick);
  }

  /// Registers a set of these gradients on all ranks.
  std::vector<std::shared_ptr<GradientSetState>> register_sets(
      const std::vector<GradientSpec>& gradients, const GradientOptions& options = {}) {
    std::vector<std::shared_ptr<GradientSetState>> sets;
    for (const auto& engine : engines_) {
      sets.push_back(std::make_shared<GradientSetState>("model", gradients, options));
      engine->submit(sets.back());
    }
    run_until_registered(sets);
    return sets;
  }

  /// Polls until these sets are registered or refused.
  void run_until_registered(const std::vector<std::shared_ptr<GradientSetState>>& groups) {
    run_until([&] {
      return std::ranges::all_of(groups,
                                 [](const auto& group) { return group->registration().done(); });
    });
  }

  /// Polls until the tickets of all `operations` are done.
  void finish(const std::vector<std::shared_ptr<Operation>>& operations,
              Duration tick = Duration(0)) {
    run_until(
        [&] {
          for (const auto& operation : operations) {
            if (!operation->ticket->done()) return false;
          }
          return true;
        },
        tick);
    bring_back();
  }

  /// Copies results of completed operations that are on the device back to their host buffers.
  void bring_back() {
    if (moved_) moved_->finish();
  }

  /// Polls until all engines have ended. After a failure they run on for some time.
  void run_until_ended(Duration tick = Duration(0)) {
    run_until(
        [&] {
          return std::ranges::all_of(engines_, [](const auto& engine) { return engine->ended(); });
        },
        tick);
  }

  /// Closes all ranks. Returns the text of the first transport error, or an empty string.
  std::string close() {
    for (int rank = 0; rank < world_size(); ++rank) submit(rank, {.kind = OperationKind::kClose});
    run_until_ended();
    for (const auto& transport : transports_) {
      if (const auto failure = transport->failure()) return failure->to_string();
    }
    return {};
  }

  /// There is room for all staging slots of the largest operations.
  static constexpr TransportLimits kLimits{
      .arena_bytes = std::size_t{5} << 18, .flags_per_peer = 1U << 12, .counters = 1U << 14};

 private:
  static constexpr std::size_t kStepsPerTick = 50;

  DeviceContext& device_context(int rank) {
    return *device_contexts_[static_cast<std::size_t>(rank)];
  }
  /// Returns the caller's stream of a rank.
  Stream& stream(int rank) { return *streams_[static_cast<std::size_t>(rank)]; }

  void make_device_contexts(std::uint64_t seed, const JobDevices& devices) {
    const ProcessGrid& grid = hub_.grid();
    for (int rank = 0; rank < grid.world_size(); ++rank) {
      device_contexts_.push_back(std::make_unique<DeviceContext>());
      device_context(rank).device =
          std::make_unique<SeededHostDevice>(seed * 1000 + static_cast<std::uint64_t>(rank));
      streams_.push_back(device_context(rank).device->make_stream());
    }
    const auto join = [&](const std::string& name, const std::vector<int>& members,
                          std::unique_ptr<DeviceCommunicator> DeviceContext::*group) {
      group_hubs_.push_back(std::make_unique<HostCommunicatorHub>(members));
      for (std::size_t i = 0; i < members.size(); ++i) {
        DeviceContext& member = device_context(members[i]);
        auto joined = group_hubs_.back()->group(static_cast<int>(i), *member.device);
        member.*group =
            devices.wrap ? devices.wrap(members[i], name, std::move(joined)) : std::move(joined);
      }
    };
    std::vector<int> all;
    for (int node = 0; node < grid.num_nodes(); ++node) {
      const std::vector<int>& members = grid.ranks_of_node(node);
      join("node " + std::to_string(node), members, &DeviceContext::node);
      all.insert(all.end(), members.begin(), members.end());
    }
    std::sort(all.begin(), all.end());
    join("world", all, &DeviceContext::world);
  }

  InProcessHub hub_;
  ManualClock clock_;
  std::vector<std::unique_ptr<HostCommunicatorHub>> group_hubs_;
  std::vector<std::unique_ptr<DeviceContext>> device_contexts_;
  std::vector<std::unique_ptr<Stream>> streams_;
  DeviceHeap heap_;
  std::unique_ptr<MovedBuffers> moved_;
  std::size_t messages_ = 0;
  std::vector<std::unique_ptr<Transport>> transports_;
  std::vector<std::unique_ptr<Engine>> engines_;
  std::unique_ptr<SeededScheduler> scheduler_;
};

/// Submits the bucket that the marked gradient completed, if any.
inline void submit_marked(Engine& engine, GradientSetState& group,
                          const std::optional<GradientIterations::ReadyBucket>& bucket) {
  if (bucket) engine.submit(group, bucket->index);
  if (const auto weights = group.mark_weights()) engine.submit(group, weights->index);
}

/// Marks a gradient as `GradientSet::ready` does, and submits its bucket if it is complete.
inline void mark(Engine& engine, GradientSetState& group, std::size_t gradient) {
  submit_marked(engine, group, group.mark(gradient));
}
/// Does the same for a gradient in device memory.
inline void mark(Engine& engine, GradientSetState& group, std::size_t gradient,
                 NativeStream stream) {
  submit_marked(engine, group, group.iterations().mark(gradient, stream));
}

/// Marks a gradient as `GradientSet::absent` does. The set may use `stream`, if given.
inline void mark_absent(Engine& engine, GradientSetState& group, std::size_t gradient,
                        std::optional<NativeStream> stream = std::nullopt) {
  submit_marked(engine, group, group.mark_absent(gradient, stream));
}

/// Returns a view of `data`, to be used in an operation.
inline BufferView view(std::vector<float>& data) {
  return {data.data(), data.size(), DType::kFloat32};
}

/// Sums a tensor over all ranks. Returns whether all ranks have the sum.
inline bool sums(EngineJob& job, const std::string& name = "x") {
  std::vector<std::vector<float>> data;
  std::vector<std::shared_ptr<Operation>> operations;
  for (int rank = 0; rank < job.world_size(); ++rank) data.emplace_back(10, 1.0F);
  for (std::size_t rank = 0; rank < data.size(); ++rank) {
    operations.push_back(job.submit(static_cast<int>(rank), all_reduce(name, data[rank])));
  }
  job.finish(operations);
  return data == std::vector(data.size(), std::vector(10, static_cast<float>(data.size())));
}

/// Returns the error of an operation whose ticket is done, or an empty string.
inline std::string error_of(const Operation& operation) {
  try {
    operation.ticket->wait(std::chrono::milliseconds(1));
    return {};
  } catch (const KoloError& e) {
    return e.what();
  }
}

}  // namespace kolo::test
