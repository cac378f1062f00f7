#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <thread>

#include "benchmarks/collective/collective_case.h"
#include "comm/device/device.h"

namespace kolo::bench {

/// As `CallerMemory`, on a device. Writes and reads have ended when they return.
class DeviceCallerMemory {
 public:
  /// `device` outlives it.
  DeviceCallerMemory(Device& device, const CollectiveCase& what, int rank, int ranks)
      : DeviceCallerMemory(device, what, counts_of(what, rank, ranks)) {}

  bool in_place() const { return !contribution_; }
  /// The same memory as `result` in place.
  void* contribution() const { return giver().data(); }
  /// Null for a rank that receives nothing of what there is.
  void* result() const { return result_.data(); }

  void write(const void* elements) {
    if (contributed_ > 0) std::memcpy(staging_.data(), elements, contributed_);
    copy(giver(), staging_, contributed_);
  }
  void read(void* elements) { fetch(elements, result_, received_); }
  void read_contribution(void* elements) { fetch(elements, giver(), contributed_); }

 private:
  DeviceCallerMemory(Device& device, const CollectiveCase& what, const CaseCounts& counts)
      : contributed_(counts.contributed * size_of(what.dtype)),
        received_(counts.received * size_of(what.dtype)),
        stream_(device.make_stream()),
        copied_(device.make_event()),
        staging_(
            device.allocate(at_least_one(std::max(contributed_, received_)), MemoryKind::kPinned)) {
    const std::size_t bytes = what.in_place ? std::max(contributed_, received_) : received_;
    if (bytes > 0 || what.count() == 0) {
      result_ = device.allocate(at_least_one(bytes), MemoryKind::kDevice);
    }
    if (!what.in_place) {
      contribution_ = device.allocate(at_least_one(contributed_), MemoryKind::kDevice);
    }
  }

  static std::size_t at_least_one(std::size_t bytes) { return std::max<std::size_t>(bytes, 1); }
  const DeviceMemory& giver() const { return in_place() ? result_ : contribution_; }

  void fetch(void* elements, const DeviceMemory& from, std::size_t bytes) {
    copy(staging_, from, bytes);
    if (bytes > 0) std::memcpy(elements, staging_.data(), bytes);
  }
  void copy(const DeviceMemory& to, const DeviceMemory& from, std::size_t bytes) {
    if (bytes == 0) return;
    stream_->copy({to.data(), bytes, DType::kUInt8, to.kind()},
                  {from.data(), bytes, DType::kUInt8, from.kind()});
    stream_->record(*copied_);
    while (!copied_->done()) std::this_thread::yield();
  }

  std::size_t contributed_, received_;  // bytes
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Event> copied_;
  DeviceMemory staging_, result_, contribution_;
};

}  // namespace kolo::bench
