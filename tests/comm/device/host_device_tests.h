#pragma once

// What devices in host memory do beyond the suite. Include once per binary.

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "comm/base/error.h"
#include "tests/comm/device/host_devices.h"
#include "tests/support/device/host_memory.h"

// Sanitizers end the process when it asks for more memory than there is, unless they are told not
// to.
extern "C" __attribute__((used)) inline const char* __asan_default_options() {
  return "allocator_may_return_null=1";
}
extern "C" __attribute__((used)) inline const char* __tsan_default_options() {
  return "allocator_may_return_null=1";
}

namespace kolo::test {

class HostDeviceFamily : public DeviceConformance {
 protected:
  /// The text of the KoloError that asking the event ends in.
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

TEST_P(HostDeviceFamily, ANullStreamCannotWait) {
  const auto event = device().make_event();
  EXPECT_THROW(device().wait(NativeStream{}, *event), UsageError);
}

TEST_P(HostDeviceFamily, TooMuchMemoryIsAnErrorThatSaysHowMuch) {
  try {
    const DeviceMemory memory = device().allocate(std::size_t{1} << 60, MemoryKind::kPinned);
    FAIL() << "an exbibyte";
  } catch (const KoloError& error) {
    EXPECT_EQ(error.error().code, ErrorCode::kResources);
    for (const char* const part : {"host", "1152921504606846976", "pinned"}) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }
}

TEST_P(HostDeviceFamily, AnOperationIsRetriedUntilItIsComplete) {
  const auto stream = device().make_stream();
  const auto tries = std::make_shared<std::atomic<int>>(0);
  as_host(*stream).enqueue([tries] { return ++*tries == 100; });
  finish(*stream);
  EXPECT_EQ(*tries, 100);
  EXPECT_EQ(tries.use_count(), 1) << "the operation outlives its end";
}

TEST_P(HostDeviceFamily, AnOperationMayWaitForThoseOfOtherStreams) {
  // As collectives do: whoever comes last lets all go on.
  constexpr int kStreams = 4;
  std::vector<std::unique_ptr<Stream>> streams;
  std::atomic<int> arrived{0};
  for (int i = 0; i < kStreams; ++i) streams.push_back(device().make_stream());
  for (const auto& stream : streams) {
    as_host(*stream).enqueue([&arrived, here = false]() mutable {
      if (!here) ++arrived;
      here = true;
      return arrived == kStreams;
    });
  }
  for (const auto& stream : streams) finish(*stream);
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

TEST_P(HostDeviceFamily, AStreamThatEndsIdleLeavesItsEventsDone) {
  const auto event = device().make_event();
  {
    const auto stream = device().make_stream();
    as_host(*stream).enqueue([] { return true; });
    finish(*stream);
    stream->record(*event);
  }
  EXPECT_TRUE(event->done());
}

}  // namespace kolo::test
