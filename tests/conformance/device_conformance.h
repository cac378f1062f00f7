#pragma once

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <ostream>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "comm/device/device.h"

namespace kolo::test {

/// A device, and the functions specific to its kind.
class DeviceUnderTest {
 public:
  virtual ~DeviceUnderTest() = default;
  virtual Device& device() = 0;
  /// Gives enqueued work time to proceed.
  virtual void advance() = 0;
  /// The stream as a caller would pass one of its own.
  virtual NativeStream as_callers(Stream& stream) = 0;
  /// Enqueues work that completes once `released` holds, which outlives this object.
  virtual void hold(Stream& stream, const std::atomic<bool>& released) = 0;
  /// Whether all of its heap allocations are made by this project.
  virtual bool counts_heap() const { return true; }
};

/// One case of the suite.
struct DeviceCase {
  std::string name;
  std::function<std::unique_ptr<DeviceUnderTest>()> open;
  std::string unavailable = {};  ///< Reason why this machine cannot run it; empty if it can.
};

inline std::ostream& operator<<(std::ostream& out, const DeviceCase& tried) {
  return out << tried.name;
}

inline std::string device_case_name(const testing::TestParamInfo<DeviceCase>& info) {
  return info.param.name;
}

/// Requirements for every device. A binary that includes this header and
/// `device_conformance_tests.h` and instantiates `DeviceConformance` inherits the suite.
class DeviceConformance : public testing::TestWithParam<DeviceCase> {
 protected:
  void SetUp() override {
    if (!GetParam().unavailable.empty()) GTEST_SKIP() << GetParam().unavailable;
    under_test_ = GetParam().open();
  }

  void TearDown() override { release(); }

  Device& device() { return under_test_->device(); }

  /// Work enqueued on the stream from now on does not begin before `release`. Meanwhile do not
  /// allocate or launch a kernel for the first time: a device may wait for itself then.
  void hold(Stream& stream) {
    released_ = false;
    under_test_->hold(stream, released_);
  }
  void release() { released_ = true; }

  /// Errors: std::runtime_error after half a minute, so that no test hangs.
  void wait_for(const Event& event) {
    until([&] { return event.done(); });
  }
  template <typename Condition>
  void until(Condition holds) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!holds()) {
      under_test_->advance();
      if (std::chrono::steady_clock::now() > deadline) {
        throw std::runtime_error("an event was not reached");
      }
    }
  }
  void finish(Stream& stream) {
    const auto event = device().make_event();
    stream.record(*event);
    wait_for(*event);
  }

  /// All of `memory` as elements of `dtype`.
  static BufferView view(const DeviceMemory& memory, DType dtype = DType::kUInt8) {
    return {memory.data(), memory.bytes() / size_of(dtype), dtype, memory.kind()};
  }

  /// Device memory with these values in it.
  template <typename T>
  DeviceMemory upload(const std::vector<T>& values) {
    const std::size_t bytes = values.size() * sizeof(T);
    const DeviceMemory pinned = device().allocate(bytes, MemoryKind::kPinned);
    DeviceMemory memory = device().allocate(bytes, MemoryKind::kDevice);
    if (bytes > 0) std::memcpy(pinned.data(), values.data(), bytes);
    const auto stream = device().make_stream();
    stream->copy(view(memory), view(pinned));
    finish(*stream);
    return memory;
  }

  /// The contents of memory, once all work on it is complete.
  template <typename T>
  std::vector<T> download(const DeviceMemory& memory) {
    const DeviceMemory pinned = device().allocate(memory.bytes(), MemoryKind::kPinned);
    const auto stream = device().make_stream();
    stream->copy(view(pinned), view(memory));
    finish(*stream);
    std::vector<T> values(memory.bytes() / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), pinned.data(), memory.bytes());
    return values;
  }

  std::atomic<bool> released_{false};
  std::unique_ptr<DeviceUnderTest> under_test_;  // last, because its streams may read `released_`
};

}  // namespace kolo::test
