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
  DeviceCallerMemory(Device& device, const CollectiveCase& what, const CaseCounts& counts)
      : in_place_(what.in_place),
        contributed_(counts.contributed * size_of(what.dtype)),
        received_(counts.received * size_of(what.dtype)),
        contributed_at_(what.in_place ? counts.contributed_at * size_of(what.dtype) : 0),
        received_at_(what.in_place ? counts.received_at * size_of(what.dtype) : 0),
        stream_(device.make_stream()),
        copied_(device.make_event()),
        staging_(
            device.allocate(at_least_one(std::max(contributed_, received_)), MemoryKind::kPinned)) {
    const std::size_t bytes =
        in_place_ ? std::max(contributed_at_ + contributed_, received_at_ + received_) : received_;
    if (bytes > 0 || what.count() == 0) {
      result_ = device.allocate(at_least_one(bytes), MemoryKind::kDevice);
    }
    if (!in_place_) {
      contribution_ = device.allocate(at_least_one(contributed_), MemoryKind::kDevice);
    }
  }

  bool in_place() const { return in_place_; }
  /// In place, it lies in the same buffer as `result`.
  void* contribution() const { return at(in_place_ ? result_ : contribution_, contributed_at_); }
  /// Null for a rank that receives nothing of what there is, out of place.
  void* result() const { return at(result_, received_at_); }

  void write(const void* elements) {
    if (contributed_ > 0) std::memcpy(staging_.data(), elements, contributed_);
    copy(on_device(contribution(), contributed_), staged(contributed_));
  }
  void read(void* elements) { fetch(elements, result(), received_); }
  void read_contribution(void* elements) { fetch(elements, contribution(), contributed_); }

 private:
  static std::size_t at_least_one(std::size_t bytes) { return std::max<std::size_t>(bytes, 1); }
  static void* at(const DeviceMemory& memory, std::size_t bytes) {
    return memory ? static_cast<std::byte*>(memory.data()) + bytes : nullptr;
  }
  static BufferView on_device(void* data, std::size_t bytes) {
    return {data, bytes, DType::kUInt8, MemoryKind::kDevice};
  }
  BufferView staged(std::size_t bytes) const {
    return {staging_.data(), bytes, DType::kUInt8, staging_.kind()};
  }

  void fetch(void* elements, void* from, std::size_t bytes) {
    copy(staged(bytes), on_device(from, bytes));
    if (bytes > 0) std::memcpy(elements, staging_.data(), bytes);
  }
  void copy(const BufferView& to, const BufferView& from) {
    if (to.count == 0) return;
    stream_->copy(to, from);
    stream_->record(*copied_);
    while (!copied_->done()) std::this_thread::yield();
  }

  bool in_place_;
  std::size_t contributed_, received_;        // bytes
  std::size_t contributed_at_, received_at_;  // bytes
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Event> copied_;
  DeviceMemory staging_, result_, contribution_;
};

}  // namespace kolo::bench
