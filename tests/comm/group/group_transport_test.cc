// A group accesses only its own ranks, flags, counters, memory and messages.

#include <gtest/gtest.h>

#include <algorithm>

#include "comm/group/group_transport.h"
#include "tests/support/in_process_transport.h"

namespace kolo {
namespace {

constexpr TransportLimits kLimits{
    .arena_bytes = 8192, .flags_per_peer = 16, .counters = 8, .buckets = 4};

/// A job of three ranks, two of them on one node. In a group of ranks 2 and 0, each member
/// places the group at another offset of its arena.
class GroupTransportTest : public testing::Test {
 protected:
  GroupTransportTest() {
    for (int rank = 0; rank < 3; ++rank) job_.push_back(hub_.transport(rank));
  }

  /// Returns the transports of one group, by rank in the group.
  std::vector<std::unique_ptr<GroupTransport>> make_group(const std::vector<int>& ranks,
                                                          std::uint64_t number) {
    GroupMembers members{.ranks = ranks, .places = {}};
    inboxes_.emplace_back(ranks.size());
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      const int rank = ranks[i];
      const std::uint64_t offset = (number * 3 + static_cast<std::uint64_t>(rank)) << 16;
      members.places.push_back({.inbox = number,
                                .first_bucket = static_cast<std::uint32_t>(
                                    1000 * number + 100 * static_cast<std::uint64_t>(rank)),
                                .arena_offset = offset});
      const auto local = std::ranges::count_if(
          ranks, [&](int each) { return job_[index(rank)]->is_mapped(each); });
      GroupTransport::clear(*job_[index(rank)], offset,
                            GroupLayout(kLimits, static_cast<std::size_t>(local)));
    }
    std::vector<std::unique_ptr<GroupTransport>> group;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      group.push_back(std::make_unique<GroupTransport>(*job_[index(ranks[i])], members, kLimits,
                                                       inboxes_.back()[i]));
    }
    return group;
  }

  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  void poll_all() {
    for (int turn = 0; turn < 3; ++turn) {
      for (const auto& transport : job_) transport->poll();
    }
  }

  InProcessHub hub_{ProcessGrid({"a", "b", "a"})};
  std::vector<std::unique_ptr<Transport>> job_;
  std::vector<std::vector<ControlInbox>> inboxes_;
};

TEST_F(GroupTransportTest, NumbersItsRanksItself) {
  const auto group = make_group({2, 1, 0}, 1);
  EXPECT_EQ(group[0]->rank(), 0);
  EXPECT_EQ(group[2]->rank(), 2);
  EXPECT_EQ(group[0]->world_size(), 3);
  EXPECT_TRUE(group[0]->is_mapped(2));
  EXPECT_FALSE(group[0]->is_mapped(1));
}

TEST_F(GroupTransportTest, FlagsAndCountersOfTwoGroupsAreApart) {
  const auto one = make_group({2, 0}, 1);
  const auto other = make_group({0, 2}, 2);
  one[0]->signal(1, 3, 7);
  EXPECT_EQ(one[1]->signalled(0, 3), 7u);
  EXPECT_EQ(one[1]->signalled(1, 3), 0u);
  EXPECT_EQ(other[0]->signalled(1, 3), 0u);
  EXPECT_EQ(one[0]->arrive(1, 5), 1u);
  EXPECT_EQ(one[1]->arrive(1, 5), 2u);
  EXPECT_EQ(one[0]->counter(1, 5), 2u);
  EXPECT_EQ(other[0]->counter(0, 5), 0u);
  other[0]->set_counter(5, 9);
  EXPECT_EQ(other[1]->counter(0, 5), 9u);
  EXPECT_EQ(one[1]->counter(1, 5), 2u);
  EXPECT_THROW(one[0]->signal(1, kLimits.flags_per_peer, 1), UsageError);
  EXPECT_THROW(one[0]->arrive(1, kLimits.counters), UsageError);
}

TEST_F(GroupTransportTest, MemoryOfAPeerIsWhatThePeerWrites) {
  const auto one = make_group({2, 0}, 1);
  const auto other = make_group({2, 0}, 2);
  for (const auto* group : {&one, &other}) {
    for (const auto& member : *group) {
      ASSERT_EQ(member->memory(member->rank()).size(), kLimits.arena_bytes);
      std::ranges::fill(member->memory(member->rank()),
                        static_cast<std::byte>(member->rank() + (group == &one ? 10 : 20)));
    }
  }
  EXPECT_EQ(one[0]->memory(1).back(), std::byte{11});
  EXPECT_EQ(one[1]->memory(0).front(), std::byte{10});
  EXPECT_EQ(other[0]->memory(1).front(), std::byte{21});
  EXPECT_THROW(one[0]->commit(1, kLimits.arena_bytes, {}), KoloError);
}

TEST_F(GroupTransportTest, MessagesOfOneTagInTwoGroupsAndTheJobAreApart) {
  const auto one = make_group({1, 0}, 1);
  const auto other = make_group({0, 1}, 2);
  const Tag from_zero{.source = 0, .bucket = 2, .iteration = 5, .ordinal = 1};
  const std::vector<std::byte> first(8, std::byte{1}), second(8, std::byte{2}),
      third(8, std::byte{3});
  std::vector<std::byte> got_one(8), got_other(8), got_job(8);
  Completion sends[3], receives[3];
  // Rank 0 of the job sends to rank 1: in the first group rank 1 sends to 0, in the other 0 to 1.
  Tag from_one = from_zero;
  from_one.source = 1;
  one[1]->isend(0, from_one, first, sends[0]);
  other[0]->isend(1, from_zero, second, sends[1]);
  job_[0]->isend(1, from_zero, third, sends[2]);
  job_[1]->irecv(0, from_zero, got_job, receives[2]);
  other[1]->irecv(0, from_zero, got_other, receives[1]);
  one[0]->irecv(1, from_one, got_one, receives[0]);
  poll_all();
  for (const Completion& receive : receives) EXPECT_EQ(receive.state, Completion::State::kDone);
  EXPECT_EQ(got_one, first);
  EXPECT_EQ(got_other, second);
  EXPECT_EQ(got_job, third);
}

TEST_F(GroupTransportTest, ControlFramesCarryTheRankInTheGroup) {
  const auto group = make_group({1, 2}, 1);
  const std::vector<std::byte> bytes{std::byte{5}};
  group[1]->send_control(0, bytes);
  poll_all();
  ControlFrame frame;
  ASSERT_TRUE(job_[1]->receive_control(frame));
  ControlDemux sorted;
  ControlInbox creators;
  sorted.open(creators);
  ASSERT_EQ(sorted.open(inboxes_.back()[0]), 1u);
  ASSERT_TRUE(sorted.take(frame));
  ControlFrame taken;
  ASSERT_TRUE(group[0]->receive_control(taken));
  EXPECT_EQ(taken.peer, 1);
  EXPECT_EQ(taken.bytes, bytes);
  EXPECT_FALSE(group[0]->receive_control(taken));
  group[1]->shutdown(true);
  group[1]->send_control(0, bytes);
  poll_all();
  EXPECT_FALSE(job_[1]->receive_control(frame));
}

}  // namespace
}  // namespace kolo
