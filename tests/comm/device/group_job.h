#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/device/device.h"
#include "comm/device/local_group.h"
#include "comm/kernels/reduce_kernels.h"

namespace kolo::test {

/// A group of ranks of which this process plays some, or all.
class GroupJob {
 public:
  using OfRank = std::function<void(int rank)>;

  virtual ~GroupJob() = default;

  virtual int size() const = 0;
  /// The ranks that this process plays.
  virtual std::vector<int> ranks() const = 0;
  virtual Device& device(int rank) = 0;
  /// The rank's group; a test may take it away.
  virtual std::unique_ptr<LocalGroup>& group(int rank) = 0;

  /// Calls `start` once for each rank, then lets streams run until `done` holds for each. When it
  /// returns, it holds for all ranks, here and elsewhere.
  virtual void run_phase(const OfRank& start, const std::function<bool(int rank)>& done) = 0;

  /// The test ends or aborts the groups, so that no other test can have them.
  virtual void use_up() {}

  /// Whether a collective takes milliseconds, as where ranks take turns on one device: a few
  /// dtypes and operations then stand for all.
  virtual bool is_slow() const { return false; }

  /// What each rank of the group gives, by rank; `mine` is asked for the ranks played here.
  virtual std::vector<std::string> exchange(const std::function<std::string(int rank)>& mine) = 0;
};

/// One line of the suite.
struct GroupCase {
  std::string name;
  std::function<std::unique_ptr<GroupJob>()> make;
  /// Says why there can be no such job here; empty if there can.
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

/// What one rank does collectives with: memory for `capacity` bytes each way, and a stream.
struct GroupDesk {
  GroupDesk(Device& device, LocalGroup& group, std::size_t capacity)
      : given(device.allocate(capacity, MemoryKind::kPinned)),
        taken(device.allocate(capacity, MemoryKind::kPinned)),
        source(group.allocate(capacity)),
        target(group.allocate(capacity)),
        stream(device.make_stream()),
        finished(device.make_event()) {}

  /// Enqueues the copy of `given` to device memory.
  void upload(const DeviceMemory& to, std::size_t bytes) { copy(*stream, to, given, bytes); }
  /// Enqueues the copy of device memory to `taken`; `finished` comes behind it.
  void download(const DeviceMemory& from, std::size_t offset, std::size_t bytes) {
    copy(*stream, taken, from, bytes, offset);
    stream->record(*finished);
  }

  static void copy(Stream& on, const DeviceMemory& to, const DeviceMemory& from, std::size_t bytes,
                   std::size_t from_offset = 0) {
    on.copy({to.data(), bytes, DType::kUInt8, to.kind()},
            {from.data() + from_offset, bytes, DType::kUInt8, from.kind()});
  }

  DeviceMemory given, taken;    ///< Pinned.
  DeviceMemory source, target;  ///< Of the device.
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Event> finished;
};

}  // namespace kolo::test
