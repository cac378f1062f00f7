#include "comm/transport/message_stream.h"

#include <algorithm>
#include <array>
#include <span>

#include <gtest/gtest.h>

#include "comm/base/aligned_memory.h"
#include "tests/support/allocations.h"

namespace kolo::test {
namespace {

constexpr std::size_t kCapacity = 64;

/// A writer and a reader of one ring, in one thread.
class MessageStreamTest : public ::testing::Test {
 protected:
  MessageStreamTest() : memory_(allocate_aligned(ByteRing::footprint(kCapacity))) {
    std::fill_n(memory_.get(), ByteRing::footprint(kCapacity), std::byte{0});
  }

  /// Reads the contents of the ring; returns the number of completed messages.
  std::size_t read() {
    std::size_t ended = 0;
    reader_.read(
        [&](const MessageHeader& header) { return std::span(received_).first(header.bytes); },
        [&](const MessageHeader&) { ++ended; });
    return ended;
  }

  AlignedMemory memory_;
  MessageWriter writer_{ByteRing(memory_.get(), kCapacity)};
  MessageReader reader_{ByteRing(memory_.get(), kCapacity)};
  std::array<std::byte, kCapacity> received_{};
};

TEST_F(MessageStreamTest, AQueueThatNeverRunsEmptyDoesNotGrow) {
  // The ring has room for less than two messages. The reader thus reads at most one message each
  // time, and the queue is never empty before the end.
  constexpr std::size_t kMessages = 8, kBytes = kCapacity / 2;
  std::array<Completion, kMessages> done;
  std::array<std::byte, kBytes> sent{};
  std::size_t pushed = 0, arrived = 0;
  const auto move = [&] {
    for (; pushed < arrived + kMessages; ++pushed) {
      writer_.push(pushed, sent, done[pushed % kMessages]);
    }
    writer_.pump();
    arrived += read();
  };
  for (std::size_t i = 0; i < 4 * kMessages; ++i) move();
  const AllocationCounter allocations;
  for (std::size_t i = 0; i < 1000; ++i) {
    move();
    ASSERT_LT(arrived + 2, pushed) << "the queue has run empty";
  }
  const std::size_t calls = allocations.calls();
  EXPECT_EQ(calls, 0U);
}

}  // namespace
}  // namespace kolo::test
