#pragma once

#include <cstddef>

namespace kolo::test {

/// Memory in the place of a device's for the buffers of a test, which the processor may touch only
/// while it is open: streams may, engines must not. Touching it while it is closed ends the
/// process.
///
/// Threads: one. Nothing is freed before `clear`.
class DeviceHeap {
 public:
  explicit DeviceHeap(std::size_t capacity = std::size_t{1} << 30);  ///< Of addresses.
  ~DeviceHeap();
  DeviceHeap(const DeviceHeap&) = delete;
  DeviceHeap& operator=(const DeviceHeap&) = delete;

  /// Aligned to 256 bytes, filled with a pattern. Before: open. Errors: std::runtime_error if there
  /// is no room left.
  std::byte* allocate(std::size_t bytes);
  /// Everything is free again. Before: open.
  void clear() { used_ = in_use_ = 0; }

  void open() { protect(true); }
  void close() { protect(false); }

 private:
  void protect(bool is_open);

  const std::size_t capacity_;
  const std::size_t mapped_bytes_;
  void* mapped_ = nullptr;
  std::byte* data_ = nullptr;  // within the mapping, aligned to a huge page
  std::size_t used_ = 0;
  std::size_t in_use_ = 0;  // the same in whole huge pages
};

/// Closed as long as this lives.
class ClosedDeviceHeap {
 public:
  explicit ClosedDeviceHeap(DeviceHeap& heap) : heap_(heap) { heap_.close(); }
  ~ClosedDeviceHeap() { heap_.open(); }
  ClosedDeviceHeap(const ClosedDeviceHeap&) = delete;
  ClosedDeviceHeap& operator=(const ClosedDeviceHeap&) = delete;

 private:
  DeviceHeap& heap_;
};

}  // namespace kolo::test
