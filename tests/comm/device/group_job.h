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

/// A group of ranks under test. This process runs some or all of the ranks.
class GroupJob {
 public:
  using OfRank = std::function<void(int rank)>;

  virtual ~GroupJob() = default;

  virtual int size() const = 0;
  /// Returns the ranks that this process runs.
  virtual std::vector<int> ranks() const = 0;
  virtual Device& device(int rank) = 0;
  /// Returns the group of `rank`. A test may move from it or reset it.
  virtual std::unique_ptr<DeviceCommunicator>& group(int rank) = 0;

  /// Calls `start` once for each rank, then runs streams until `done` returns true for all ranks,
  /// including the ranks of other processes.
  virtual void run_phase(const OfRank& start, const std::function<bool(int rank)>& done) = 0;

  /// A test that ends or aborts the groups calls this, so that later tests do not reuse them.
  virtual void use_up() {}

  /// Returns whether a collective takes milliseconds, for example because ranks share one device.
  /// Tests then use only a few dtypes and operations.
  virtual bool is_slow() const { return false; }

  /// Returns a text of each rank of the group, by rank. Calls `mine` for the ranks of this process.
  virtual std::vector<std::string> exchange(const std::function<std::string(int rank)>& mine) = 0;
};

/// One implementation under test.
struct GroupCase {
  std::string name;
  std::function<std::unique_ptr<GroupJob>()> make;
  /// Returns the reason why such a job is impossible here, or an empty string.
  std::function<std::string()> why_unavailable = [] { return std::string(); };
};

/// Converts values to or from `dtype` in memory that the processor can access.
inline void write_values(const DeviceMemory& memory, DType dtype,
                         const std::vector<double>& values) {
  convert(dtype, memory.data(), DType::kFloat64, values.data(), values.size(), 1.0);
}

inline std::vector<double> read_values(const DeviceMemory& memory, DType dtype, std::size_t count) {
  std::vector<double> values(count);
  convert(DType::kFloat64, values.data(), dtype, memory.data(), count, 1.0);
  return values;
}

/// One rank's resources for collectives: a stream, and `capacity` bytes for each direction.
struct GroupDesk {
  GroupDesk(Device& device, DeviceCommunicator& group, std::size_t capacity)
      : given(device.allocate(capacity, MemoryKind::kPinned)),
        taken(device.allocate(capacity, MemoryKind::kPinned)),
        source(group.allocate(capacity)),
        target(group.allocate(capacity)),
        stream(device.make_stream()),
        finished(device.make_event()) {}

  /// Enqueues a copy of `given` to device memory.
  void upload(const DeviceMemory& to, std::size_t bytes) { copy(*stream, to, given, bytes); }
  /// Enqueues a copy of device memory to `taken`, then records `finished`.
  void download(const DeviceMemory& from, std::size_t offset, std::size_t bytes) {
    copy(*stream, taken, from, bytes, offset);
    stream->record(*finished);
  }

  static void copy(Stream& on, const DeviceMemory& to, const DeviceMemory& from, std::size_t bytes,
                   std::size_t from_offset = 0) {
    on.copy({to.data(), bytes, DType::kUInt8, to.kind()},
            {from.data() + from_offset, bytes, DType::kUInt8, from.kind()});
  }

  DeviceMemory given, taken;    ///< Pinned memory, copied to and from device memory.
  DeviceMemory source, target;  ///< Device memory.
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Event> finished;
};

}  // namespace kolo::test
