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

/// The device streams, which run concurrently.
enum class DeviceLine : std::uint8_t {
  kPacks,        ///< Pack kernels, which wait for the caller's kernels.
  kKernels,      ///< All other kernels, and the ends of iterations.
  kCollectives,  ///< Native steps (collectives of the device library).
  kDown,         ///< Copies from device memory to staging memory.
  kUp,           ///< Copies from staging memory to device memory.
};
inline constexpr std::size_t kDeviceLines = 5;
/// The first lines, which every device bucket uses; the others need staging memory.
inline constexpr std::size_t kBasicLines = 3;

/// The memory of a device bucket and the dependencies between its steps on the device. It is made
/// at plan time and used in every iteration. Threads: the executor's.
class DeviceRun {
 public:
  /// The ranges of a native step that has one range per rank, as arguments of the device library.
  /// `point` fills in the addresses.
  struct Parts {
    std::vector<std::size_t> counts = {};             ///< Numbers of elements, by tensor and rank.
    std::vector<GroupTensor> tensors = {};            ///< One entry per tensor; refers to `counts`.
    std::vector<GroupPart> sent = {}, received = {};  ///< By rank; for kExchange only.
  };

  struct OnDevice {
    DeviceLine line = DeviceLine::kKernels;
    std::unique_ptr<Event> event = {};     ///< Recorded after the step; null if unused.
    std::vector<const Event*> waits = {};  ///< Events of predecessors on other streams.
    /// The step has no predecessor on the device, so it waits for the bucket's inputs.
    bool waits_for_inputs = false;
    bool is_tracked = false;                         ///< Steps outside the device wait for it.
    std::optional<LaunchOrder::Launch> launch = {};  ///< Set for native steps only.
    Parts parts = {};
  };

  /// Allocates memory and events. `schedule` and `binding` must outlive the run. Collective: all
  /// ranks call it together. Errors: KoloError(kResources).
  DeviceRun(const DeviceAccess& access, const Schedule& schedule, const Binding& binding);

  /// Whether the step runs on a device stream; otherwise the executor runs it.
  static bool runs(const Schedule& schedule, const Step& step);

  /// Returns the address of a range in this rank's memory; null for an empty range of tensors.
  /// Addresses in tensors may change between iterations.
  std::byte* address(const Range& range) const;
  /// Writes the current addresses of a native step's ranges to `parts`.
  void point(const Step& step, Parts& parts) const;
  BufferView view(const Range& range) const;
  /// Returns the scale that native steps leave to kernels.
  double kernel_scale() const {
    return binding.scale * static_cast<double>(schedule.averaged_ranks);
  }
  /// Returns a range of kBucket or kUser as the elements of a codec.
  CodecElements elements(const Range& range) const;
  bool has_turns_under_way() const;
  /// Cancels messages in flight of native steps. Returns whether none is left.
  bool let_go(Transport& transport);

  const Schedule& schedule;
  const Binding& binding;
  std::vector<OnDevice> steps;          ///< Indexed by StepId.
  std::unique_ptr<Event> inputs_ready;  ///< Recorded after all inputs; null without inputs.
  std::unique_ptr<Event> finished;      ///< Recorded at the end of the last sealed iteration.
  std::vector<const Event*> ends;       ///< Events of the steps without successors.
  std::vector<const void*> source_addresses;
  std::uint64_t iteration = 0;

 private:
  /// Returns the address of the first non-empty range; null if all are empty.
  std::byte* first_address(std::span<const Range> ranges) const;
  void allocate(const DeviceAccess& access);
  void link_steps(Device& device);

  DeviceMemory bucket_, scratch_, staging_;
};

}  // namespace kolo
