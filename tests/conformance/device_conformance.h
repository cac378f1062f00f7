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

/// A device under test, and the functions that are specific to its kind.
class DeviceUnderTest {
 public:
  virtual ~DeviceUnderTest() = default;
  virtual Device& device() = 0;
  /// Lets enqueued work proceed.
  virtual void advance() = 0;
  /// Returns the stream as a caller would pass its own stream.
  virtual NativeStream as_callers(Stream& stream) = 0;
  /// Enqueues work that completes when `released` is true. `released` must outlive this object.
  virtual void hold(Stream& stream, const std::atomic<bool>& released) = 0;
  /// Returns whether all heap allocations of the device are made by this project.
  virtual bool counts_heap() const { return true; }
};

/// One device of the suite.
struct DeviceCase {
  std::string name;
  std::function<std::unique_ptr<DeviceUnderTest>()> open;
  std::string unavailable = {};  ///< Reason why this machine cannot run it, or an empty string.
};

inline std::ostream& operator<<(std::ostream& out, const DeviceCase& tried) {
  return out << tried.name;
}

inline std::string device_case_name(const testing::TestParamInfo<DeviceCase>& info) {
  return info.param.name;
}

/// The requirements for every device. A binary inherits the suite if it includes this header and
/// `device_conformance_tests.h`, and instantiates `DeviceConformance`.
class DeviceConformance : public testing::TestWithParam<DeviceCase> {
 protected:
  void SetUp() override {
    if (!GetParam().unavailable.empty()) GTEST_SKIP() << GetParam().unavailable;
    under_test_ = GetParam().open();
  }

  void TearDown() override { release(); }

  Device& device() { return under_test_->device(); }

  /// Delays work that is enqueued on the stream until `release`. Until then, a test must not
  /// allocate memory or launch a kernel for the first time, because a device may wait for itself.
  void hold(Stream& stream) {
    released_ = false;
    under_test_->hold(stream, released_);
  }
  void release() { released_ = true; }

  /// Errors: std::runtime_error after 30 seconds, so that no test hangs.
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

  /// Returns a view of all of `memory` as elements of `dtype`.
  static BufferView view(const DeviceMemory& memory, DType dtype = DType::kUInt8) {
    return {memory.data(), memory.bytes() / size_of(dtype), dtype, memory.kind()};
  }

  /// Returns device memory with these values.
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

  /// Waits for all work on `memory`; returns its contents.
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
  std::unique_ptr<DeviceUnderTest> under_test_;  // destroyed first: streams read `released_`
};

}  // namespace kolo::test
