#pragma once

#include <cstddef>

namespace kolo::test {

/// Memory that emulates device memory for the buffers of a test. The processor may access it only
/// while it is open: streams open it, and engines must not access it. An access while it is closed
/// ends the process.
///
/// Threads: one. Nothing is freed before `clear`.
class DeviceHeap {
 public:
  /// `capacity` is the size of the address space in bytes.
  explicit DeviceHeap(std::size_t capacity = std::size_t{1} << 30);
  ~DeviceHeap();
  DeviceHeap(const DeviceHeap&) = delete;
  DeviceHeap& operator=(const DeviceHeap&) = delete;

  /// Returns memory aligned to 256 bytes and filled with a pattern. Before: open. Errors:
  /// std::runtime_error if the heap is full.
  std::byte* allocate(std::size_t bytes);
  /// Frees all allocations. Before: open.
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
  std::size_t in_use_ = 0;  // `used_`, rounded up to whole huge pages
};

/// Keeps a heap closed during the lifetime of this object.
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
