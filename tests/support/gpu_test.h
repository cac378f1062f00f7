#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "comm/device/cuda_device.h"

namespace kolo::test {

/// A test on GPU 0 with one stream. It is skipped if there is no GPU.
class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    const CudaAvailability found = find_cuda_devices();
    if (found.device_count == 0) GTEST_SKIP() << "no CUDA device: " << found.reason;
    device = std::make_unique<CudaDevice>(0);
    stream = device->make_stream();
  }

  /// Copies `bytes` to new device memory.
  DeviceMemory upload(std::span<const std::byte> bytes) {
    DeviceMemory memory =
        device->allocate(std::max(bytes.size(), std::size_t{1}), MemoryKind::kDevice);
    overwrite(memory, bytes);
    return memory;
  }

  void overwrite(const DeviceMemory& memory, std::span<const std::byte> bytes) {
    if (bytes.empty()) return;
    const DeviceMemory pinned = device->allocate(bytes.size(), MemoryKind::kPinned);
    std::memcpy(pinned.data(), bytes.data(), bytes.size());
    stream->copy(view(memory, bytes.size()), view(pinned, bytes.size()));
    settle();
  }

  /// Waits until the stream is idle, and returns the first `count` bytes of the memory.
  std::vector<std::byte> download(const DeviceMemory& memory, std::size_t count) {
    std::vector<std::byte> bytes(count);
    if (count == 0) return bytes;
    const DeviceMemory pinned = device->allocate(count, MemoryKind::kPinned);
    stream->copy(view(pinned, count), view(memory, count));
    settle();
    std::memcpy(bytes.data(), pinned.data(), count);
    return bytes;
  }

  /// Blocks until the stream is idle.
  void settle() {
    const auto event = device->make_event();
    stream->record(*event);
    while (!event->done()) std::this_thread::yield();
  }

  std::unique_ptr<CudaDevice> device;
  std::unique_ptr<Stream> stream;

 private:
  static BufferView view(const DeviceMemory& memory, std::size_t bytes) {
    return {memory.data(), bytes, DType::kUInt8, memory.kind()};
  }
};

}  // namespace kolo::test
