#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/device/cuda_device.h"
#include "tests/trainer/cuda/references.h"
#include "trainer/cuda/compute/status.h"
#include "trainer/cuda/kernels/elementwise.h"

namespace kolo::trainer::cuda {

/// Returns the relative error of one rounding: half the relative distance of neighbouring numbers.
inline float unit_roundoff(DType dtype) {
  if (dtype == DType::kBFloat16) return 0x1.0p-8f;
  if (dtype == DType::kFloat16) return 0x1.0p-11f;
  return 0x1.0p-24f;
}

inline constexpr DType kActivationTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};

inline float* floats(const DeviceMemory& memory) { return reinterpret_cast<float*>(memory.data()); }

/// A test on the first GPU. It is skipped if there is no GPU.
class CudaTest : public testing::Test {
 protected:
  void SetUp() override {
    const CudaAvailability cuda = find_cuda_devices();
    if (cuda.device_count == 0) GTEST_SKIP() << "no CUDA device: " << cuda.reason;
    device_ = std::make_unique<CudaDevice>(0);
    guard_.emplace(0);
    stream_ = device_->make_stream();
    done_ = device_->make_event();
  }

  NativeStream native() const { return {stream_->native()}; }

  void finish() {
    stream_->record(*done_);
    wait_for(*done_);
  }

  DeviceMemory room(std::size_t bytes) { return device_->allocate(bytes, MemoryKind::kDevice); }

  template <typename T>
  DeviceMemory upload(const std::vector<T>& values) {
    const std::size_t bytes = values.size() * sizeof(T);
    const DeviceMemory pinned = device_->allocate(bytes, MemoryKind::kPinned);
    std::memcpy(pinned.data(), values.data(), bytes);
    DeviceMemory memory = room(bytes);
    stream_->copy(view(memory.data(), bytes, MemoryKind::kDevice),
                  view(pinned.data(), bytes, MemoryKind::kPinned));
    finish();
    return memory;
  }

  /// Waits for the work enqueued on `stream_` so far, and downloads `data`.
  template <typename T>
  std::vector<T> download(const void* data, std::size_t count) {
    const std::size_t bytes = count * sizeof(T);
    const DeviceMemory pinned = device_->allocate(bytes, MemoryKind::kPinned);
    stream_->copy(view(pinned.data(), bytes, MemoryKind::kPinned),
                  view(const_cast<void*>(data), bytes, MemoryKind::kDevice));
    finish();
    std::vector<T> values(count);
    std::memcpy(values.data(), pinned.data(), bytes);
    return values;
  }

  std::unique_ptr<CudaDevice> device_;
  std::optional<CudaDeviceGuard> guard_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Event> done_;

 private:
  static BufferView view(void* data, std::size_t bytes, MemoryKind kind) {
    return {data, bytes, DType::kUInt8, kind};
  }
};

/// Expects that no value differs by more than `bound` times the largest expected magnitude (or 1).
inline void expect_close(std::span<const float> actual, std::span<const float> expected,
                         float bound, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  float scale = 1.0f;
  for (const float value : expected) scale = std::max(scale, std::abs(value));
  for (std::size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], bound * scale) << what << "[" << i << "]";
  }
}

}  // namespace kolo::trainer::cuda
