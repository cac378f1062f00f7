// Frames of groups find their inbox, and those of the job pass by.

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "comm/transport/control_switch.h"

namespace kolo {
namespace {

std::vector<std::byte> bytes_of(std::initializer_list<int> values) {
  std::vector<std::byte> bytes;
  for (int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

ControlFrame addressed(int peer, ControlSwitch::Number number,
                       const std::vector<std::byte>& bytes) {
  ControlFrame frame{.peer = peer, .bytes = {}};
  ControlSwitch::address(number, bytes, frame.bytes);
  return frame;
}

TEST(ControlSwitch, PutsFramesIntoTheirInboxes) {
  ControlSwitch sorted;
  ControlInbox founders, group;
  ASSERT_EQ(sorted.open(founders), ControlSwitch::kFounders);
  const ControlSwitch::Number number = sorted.open(group);
  ControlFrame first = addressed(3, number, bytes_of({7, 8}));
  ControlFrame second = addressed(1, ControlSwitch::kFounders, {});
  EXPECT_TRUE(sorted.take(first));
  EXPECT_TRUE(sorted.take(second));
  ASSERT_EQ(group.size(), 1u);
  EXPECT_EQ(group.front().peer, 3);
  EXPECT_EQ(group.front().bytes, bytes_of({7, 8}));
  ASSERT_EQ(founders.size(), 1u);
  EXPECT_TRUE(founders.front().bytes.empty());
}

TEST(ControlSwitch, LeavesFramesOfTheJobAlone) {
  ControlSwitch sorted;
  ControlFrame frame{.peer = 0, .bytes = bytes_of({1, 2, 3, 4, 5, 6, 7, 8, 9, 10})};
  EXPECT_FALSE(sorted.take(frame));
  EXPECT_EQ(frame.bytes.size(), 10u);
  ControlFrame shorter{.peer = 0, .bytes = bytes_of({255})};
  EXPECT_FALSE(sorted.take(shorter));
}

TEST(ControlSwitch, DropsFramesOfGroupsThatHaveEnded) {
  ControlSwitch sorted;
  ControlInbox founders, old_group, new_group;
  sorted.open(founders);
  const ControlSwitch::Number old_number = sorted.open(old_group);
  sorted.close(old_number);
  EXPECT_NE(sorted.open(new_group), old_number);
  ControlFrame late = addressed(2, old_number, bytes_of({1}));
  EXPECT_TRUE(sorted.take(late));
  EXPECT_TRUE(old_group.empty());
  EXPECT_TRUE(new_group.empty());
}

}  // namespace
}  // namespace kolo
