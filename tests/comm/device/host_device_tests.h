#pragma once

// Tests of host devices beyond the conformance suite. A binary includes them once.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

#include "comm/base/error.h"
#include "tests/conformance/device_conformance.h"
#include "tests/support/device/host_device.h"
#include "tests/support/device/host_stream.h"

namespace kolo::test {

/// The common base of the devices in host memory.
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

class HostDeviceFamily : public DeviceConformance {
 protected:
  /// Returns the text of the KoloError that is thrown when the event is queried.
  std::string failure_of(const Event& event) {
    try {
      wait_for(event);
    } catch (const KoloError& error) {
      EXPECT_EQ(error.error().code, ErrorCode::kInternal);
      return error.what();
    }
    return "";
  }
};

TEST_P(HostDeviceFamily, FreshMemoryIsPoisoned) {
  for (const MemoryKind kind : {MemoryKind::kPinned, MemoryKind::kDevice}) {
    const DeviceMemory memory = device().allocate(4096, kind);
    const auto* const floats = reinterpret_cast<const float*>(memory.data());
    EXPECT_TRUE(std::all_of(floats, floats + 1024, [](float value) { return std::isnan(value); }));
    EXPECT_EQ(std::count(memory.data(), memory.data() + 4096, kPoison), 4096);
  }
}

TEST_P(HostDeviceFamily, AnOperationThatThrowsFailsItsStreamAndWhoWaitsForIt) {
  const auto failing = device().make_stream(), waiting = device().make_stream();
  const auto before = device().make_event(), after = device().make_event();
  const auto behind = device().make_event();
  std::atomic<bool> ran_later{false};
  hold(*failing);
  failing->record(*before);
  as_host(*failing).enqueue([]() -> bool { throw std::runtime_error("the kernel failed"); });
  as_host(*failing).enqueue([&ran_later] { return ran_later = true; });
  failing->record(*after);
  waiting->wait(*after);
  waiting->record(*behind);
  release();
  wait_for(*before);
  EXPECT_EQ(failure_of(*after), "the kernel failed");
  EXPECT_EQ(failure_of(*behind), "the kernel failed");
  EXPECT_TRUE(before->done());
  EXPECT_FALSE(ran_later);
  EXPECT_THROW(as_host(*failing).enqueue([] { return true; }), KoloError);
}

TEST_P(HostDeviceFamily, AStreamThatEndsDropsWhatHasNotBegun) {
  const auto waiting = device().make_stream();
  const auto dropped = device().make_event(), behind = device().make_event();
  const auto kept_alive = std::make_shared<int>(0);
  std::atomic<bool> ran{false};
  {
    const auto stream = device().make_stream();
    hold(*stream);
    as_host(*stream).enqueue([&ran, kept_alive] { return ran = true; });
    stream->record(*dropped);
    waiting->wait(*dropped);
    waiting->record(*behind);
    EXPECT_FALSE(dropped->done());
  }
  EXPECT_EQ(kept_alive.use_count(), 1);
  EXPECT_NE(failure_of(*dropped).find("destroyed"), std::string::npos);
  EXPECT_NE(failure_of(*behind).find("destroyed"), std::string::npos);
  EXPECT_FALSE(ran);
}

}  // namespace kolo::test
