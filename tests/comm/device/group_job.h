#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/device/device.h"
#include "comm/device/device_communicator.h"
#include "comm/kernels/reduce_kernels.h"

namespace kolo::test {

/// A group of ranks, of which this process runs some or all.
class GroupJob {
 public:
  using OfRank = std::function<void(int rank)>;

  virtual ~GroupJob() = default;

  virtual int size() const = 0;
  /// The ranks that this process runs.
  virtual std::vector<int> ranks() const = 0;
  virtual Device& device(int rank) = 0;
  /// The rank's group; a test may take it away.
  virtual std::unique_ptr<DeviceCommunicator>& group(int rank) = 0;

  /// Calls `start` once for each rank, then runs streams until `done` holds for each. On return it
  /// holds for all ranks, including those of other processes.
  virtual void run_phase(const OfRank& start, const std::function<bool(int rank)>& done) = 0;

  /// Called if the test ends or aborts the groups, so that other tests do not reuse them.
  virtual void use_up() {}

  /// Whether a collective takes milliseconds, as when ranks take turns on one device: then tests
  /// use only a few dtypes and operations.
  virtual bool is_slow() const { return false; }

  /// The texts of all ranks of the group, by rank; `mine` is called for the ranks of this process.
  virtual std::vector<std::string> exchange(const std::function<std::string(int rank)>& mine) = 0;
};

/// One line of the suite.
struct GroupCase {
  std::string name;
  std::function<std::unique_ptr<GroupJob>()> make;
  /// The reason why such a job is impossible here; empty if it is possible.
  std::function<std::string()> why_unavailable = [] { return std::string(); };
};

/// Values as `dtype` in memory that the processor can write and read.
inline void write_values(const DeviceMemory& memory, DType dtype,
                         const std::vector<double>& values) {
  convert(dtype, memory.data(), DType::kFloat64, values.data(), values.size(), 1.0);
}

inline std::vector<double> read_values(const DeviceMemory& memory, DType dtype, std::size_t count) {
  std::vector<double> values(count);
  convert(DType::kFloat64, values.data(), dtype, memory.data(), count, 1.0);
  return values;
}

/// Resources of one rank for collectives: memory for `capacity` bytes each way, and a stream.
struct GroupDesk {
  GroupDesk(Device& device, DeviceCommunicator& group, std::size_t capacity)
      : given(device.allocate(capacity, MemoryKind::kPinned)),
        taken(device.allocate(capacity, MemoryKind::kPinned)),
        source(group.allocate(capacity)),
        target(group.allocate(capacity)),
        stream(device.make_stream()),
        finished(device.make_event()) {}

  /// Enqueues the copy of `given` to device memory.
  void upload(const DeviceMemory& to, std::size_t bytes) { copy(*stream, to, given, bytes); }
  /// Enqueues the copy of device memory to `taken`, then records `finished`.
  void download(const DeviceMemory& from, std::size_t offset, std::size_t bytes) {
    copy(*stream, taken, from, bytes, offset);
    stream->record(*finished);
  }

  static void copy(Stream& on, const DeviceMemory& to, const DeviceMemory& from, std::size_t bytes,
                   std::size_t from_offset = 0) {
    on.copy({to.data(), bytes, DType::kUInt8, to.kind()},
            {from.data() + from_offset, bytes, DType::kUInt8, from.kind()});
  }

  DeviceMemory given, taken;    ///< Pinned memory.
  DeviceMemory source, target;  ///< Device memory.
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Event> finished;
};

}  // namespace kolo::test
