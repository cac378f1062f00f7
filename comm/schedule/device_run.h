#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "comm/device/device_communicator.h"
#include "comm/schedule/binding.h"
#include "comm/schedule/launch_order.h"
#include "comm/schedule/schedule.h"

namespace kolo {

/// The concurrent streams of a device.
enum class DeviceLine : std::uint8_t {
  kPacks,        ///< Pack kernels, which wait for the caller's kernels.
  kKernels,      ///< All other kernels.
  kCollectives,  ///< Native steps.
  kDown,         ///< Copies to staging memory.
  kUp,           ///< Copies from staging memory.
  kEnd,          ///< Ends of buckets; no work of its own.
};
inline constexpr std::size_t kDeviceLines = 6;

/// The memory of a device bucket and the dependencies of its steps on the device: made at plan
/// time, used in every iteration. Threads: the executor's.
class DeviceRun {
 public:
  /// The ranges of a native step with one range per rank, in the form that its library takes.
  /// `point` fills in the addresses.
  struct Parts {
    std::vector<std::size_t> counts = {};             ///< By tensor and rank; unused for an
                                                      ///< exchange.
    std::vector<GroupTensor> tensors = {};            ///< Refer to `counts`.
    std::vector<GroupPart> sent = {}, received = {};  ///< For an exchange.
  };

  struct OnDevice {
    DeviceLine line = DeviceLine::kKernels;
    std::unique_ptr<Event> event = {};               ///< Recorded after the step, if needed.
    std::vector<const Event*> waits = {};            ///< Recorded after its predecessors on other
                                                     ///< streams.
    bool waits_for_inputs = false;                   ///< It has no predecessor on the device.
    bool is_tracked = false;                         ///< A step outside the device waits for it.
    std::optional<LaunchOrder::Launch> launch = {};  ///< For a native step.
    Parts parts = {};
  };

  /// `schedule` and `binding` outlive the run. Collective. Errors: KoloError(kResources).
  DeviceRun(const DeviceAccess& access, const Schedule& schedule, const Binding& binding);

  /// Whether the step runs on a stream; the executor runs the others.
  static bool runs(const Schedule& schedule, const Step& step);

  /// Address of a range of this rank's memory; for a range in tensors it may change with each use.
  /// Null for an empty range in tensors.
  std::byte* address(const Range& range) const;
  /// Writes the current addresses of a native step's ranges to `parts`.
  void point(const Step& step, Parts& parts) const;
  BufferView view(const Range& range) const;
  bool has_turns_under_way() const;

  const Schedule& schedule;
  const Binding& binding;
  std::vector<OnDevice> steps;          ///< By step.
  std::unique_ptr<Event> inputs_ready;  ///< Recorded after all inputs; null without inputs.
  std::unique_ptr<Event> finished;      ///< Recorded after the iteration that was sealed last.
  std::vector<const Event*> ends;       ///< Recorded after steps without successors.
  std::vector<const void*> source_addresses;
  std::uint64_t iteration = 0;

 private:
  /// Address of the first non-empty range; null if all are empty.
  std::byte* first_address(std::span<const Range> ranges) const;
  void allocate(const DeviceAccess& access);
  void link_steps(Device& device);

  DeviceMemory bucket_, scratch_, staging_;
};

}  // namespace kolo
