#include "runtime/calibration/native_probe.h"

#include <algorithm>
#include <limits>
#include <thread>

#include "comm/algorithms/all_reduce/stage.h"
#include "comm/base/error.h"

namespace kolo {
namespace {

constexpr std::size_t kBytes = std::size_t{1} << 20;
constexpr int kCalls = 3;
constexpr std::chrono::seconds kAbortWithin{5};
using Steady = std::chrono::steady_clock;

void require_success(DeviceCommunicator& world) {
  if (const auto error = world.async_error()) throw KoloError(*error);
}

/// Returns the duration of the shortest call in microseconds. Errors: as `time_native`.
double shortest_call(Stream& stream, Event& event, DeviceCommunicator& world, std::byte* data,
                     Steady::time_point give_up) {
  const auto wait_until = [&](const auto& is_over) {
    while (!is_over()) {
      require_success(world);
      if (Steady::now() > give_up) {
        throw KoloError({.code = ErrorCode::kTimeout,
                         .what = "the first collective among the devices of all ranks has not "
                                 "ended within connect_timeout"});
      }
      std::this_thread::yield();
    }
  };
  double least_us = std::numeric_limits<double>::infinity();
  for (int call = 0; call <= kCalls; ++call) {
    const Steady::time_point began = Steady::now();
    world.all_reduce(stream, data, data, kBytes / sizeof(float), DType::kFloat32, ReduceOp::kMax);
    wait_until([&] { return !world.is_launching(); });
    require_success(world);  // The event of a refused call is done at once.
    stream.record(event);
    wait_until([&] { return event.done(); });
    const std::chrono::duration<double, std::micro> took = Steady::now() - began;
    if (call > 0) least_us = std::min(least_us, took.count());  // the first one only warms up
  }
  return least_us;
}

}  // namespace

double time_native(Device& device, DeviceCommunicator& world, std::chrono::milliseconds deadline) {
  const Steady::time_point give_up = Steady::now() + deadline;
  DeviceMemory memory = world.allocate(kBytes);
  memory.leak_if(device.stuck());
  const auto stream = device.make_stream();
  const auto event = device.make_event();
  try {
    return shortest_call(*stream, *event, world, memory.data(), give_up);
  } catch (...) {  // A collective may still use the memory.
    if (!world.abort(kAbortWithin)) device.note_stuck();
    throw;
  }
}

void fit_native(double us, const ProcessGrid& grid, LinkCosts& costs) {
  const double factor = us / native_us(grid, costs, static_cast<double>(kBytes));
  costs.native_network.latency_us *= factor;
  costs.native_network.bytes_per_us /= factor;
  costs.native_timed = 1;
}

}  // namespace kolo
