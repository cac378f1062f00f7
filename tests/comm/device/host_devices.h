#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "tests/conformance/device_conformance.h"
#include "tests/support/device/host_device.h"
#include "tests/support/device/host_stream.h"
#include "tests/support/device/seeded_host_device.h"

namespace kolo::test {

/// What the devices in host memory share.
class HostUnderTest : public DeviceUnderTest {
 public:
  NativeStream as_callers(Stream& stream) final { return {&as_host(stream)}; }
  void hold(Stream& stream, const std::atomic<bool>& released) final {
    as_host(stream).enqueue([&released] { return released.load(); });
  }
};

class ThreadsUnderTest final : public HostUnderTest {
 public:
  Device& device() override { return device_; }
  void advance() override { std::this_thread::yield(); }

 private:
  HostDevice device_;
};

class SeededUnderTest final : public HostUnderTest {
 public:
  explicit SeededUnderTest(std::uint64_t seed) : device_(seed) {}
  SeededHostDevice& device() override { return device_; }
  void advance() override { device_.step(); }

 private:
  SeededHostDevice device_;
};

inline DeviceCase threads_case() {
  return {.name = "threads", .open = [] { return std::make_unique<ThreadsUnderTest>(); }};
}
inline DeviceCase seeded_case(std::uint64_t seed) {
  return {.name = "seed" + std::to_string(seed),
          .open = [seed] { return std::make_unique<SeededUnderTest>(seed); }};
}

}  // namespace kolo::test
