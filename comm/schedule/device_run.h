#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "comm/device/local_group.h"
#include "comm/schedule/binding.h"
#include "comm/schedule/launch_order.h"
#include "comm/schedule/schedule.h"

namespace kolo {

/// The streams of a device, which run side by side.
enum class DeviceLine : std::uint8_t {
  kPacks,        ///< Wait for the caller's kernels.
  kKernels,      ///< Everything else that computes.
  kCollectives,  ///< Native steps.
  kDown,         ///< Copies to staging memory.
  kUp,           ///< Copies from staging memory.
  kEnd,          ///< Ends of buckets; does nothing itself.
};
inline constexpr std::size_t kDeviceLines = 6;

/// The memory of a device bucket, and how its steps hang together on the device: made at plan time,
/// used in every iteration. Threads: the executor's.
class DeviceRun {
 public:
  /// The ranges of a native step that has one for each rank, as its library wants them. `point`
  /// says where they are.
  struct Parts {
    std::vector<std::size_t> counts = {};             ///< By tensor and rank; not for an exchange.
    std::vector<GroupTensor> tensors = {};            ///< With these counts.
    std::vector<GroupPart> sent = {}, received = {};  ///< Of an exchange.
  };

  struct OnDevice {
    DeviceLine line = DeviceLine::kKernels;
    std::unique_ptr<Event> event = {};               ///< Behind the step, if it is needed.
    std::vector<const Event*> waits = {};            ///< Behind its predecessors of other lines.
    bool waits_for_inputs = false;                   ///< It has no predecessor on the device.
    bool is_tracked = false;                         ///< A step off the device waits for it.
    std::optional<LaunchOrder::Launch> launch = {};  ///< For a native step.
    Parts parts = {};
  };

  /// `schedule` and `binding` outlive the run. Collective. Errors: KoloError(kResources).
  DeviceRun(const DeviceAccess& access, const Schedule& schedule, const Binding& binding);

  /// Whether the step is one for a stream; others are the executor's.
  static bool runs(const Schedule& schedule, const Step& step);

  /// Where a range of this rank's memory is, which for one in tensors is asked anew at each use.
  /// Null for an empty one there.
  std::byte* address(const Range& range) const;
  /// Writes to `parts` where the ranges of a native step that has them are now.
  void point(const Step& step, Parts& parts) const;
  BufferView view(const Range& range) const;
  bool has_turns_under_way() const;

  const Schedule& schedule;
  const Binding& binding;
  std::vector<OnDevice> steps;          ///< By step.
  std::unique_ptr<Event> inputs_ready;  ///< Behind all inputs; null without inputs.
  std::unique_ptr<Event> finished;      ///< Behind the iteration that was sealed last.
  std::vector<const Event*> ends;       ///< Behind steps that nothing follows.
  std::vector<const void*> source_addresses;
  std::uint64_t iteration = 0;

 private:
  /// Where the first of these ranges that is not empty is; null if all are.
  std::byte* first_address(std::span<const Range> ranges) const;
  void allocate(const DeviceAccess& access);
  void link_steps(Device& device);

  DeviceMemory bucket_, scratch_, staging_;
};

}  // namespace kolo
