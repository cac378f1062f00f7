// Frames of groups are put into their inbox, and frames of the job are not.

#include <gmock/gmock.h>

#include <deque>
#include <random>

#include "comm/transport/control_frames.h"

namespace kolo {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Taken = std::vector<std::pair<int, std::vector<int>>>;  ///< Peer and bytes of each frame.

Taken take_all(ControlArrivals& arrivals) {
  Taken taken;
  ControlFrame frame;
  while (arrivals.take(frame)) {
    std::vector<int> bytes;
    for (const std::byte byte : frame.bytes) bytes.push_back(std::to_integer<int>(byte));
    taken.emplace_back(frame.peer, bytes);
  }
  return taken;
}

ControlArrivals::Arrival& announce(ControlArrivals& arrivals, int peer, int byte) {
  ControlArrivals::Arrival& arrival = arrivals.announce(peer, 1);
  arrival.memory()[0] = static_cast<std::byte>(byte);
  return arrival;
}

TEST(ControlArrivals, AreTakenOnceWhenTheyAreComplete) {
  ControlArrivals arrivals;
  EXPECT_THAT(take_all(arrivals), IsEmpty());
  ControlArrivals::Arrival& arrival = arrivals.announce(3, 2);
  EXPECT_THAT(take_all(arrivals), IsEmpty());
  std::ranges::copy(std::vector{std::byte{7}, std::byte{8}}, arrival.memory().begin());
  arrival.complete();
  EXPECT_THAT(take_all(arrivals), ElementsAre(std::pair(3, std::vector{7, 8})));
  EXPECT_THAT(take_all(arrivals), IsEmpty());
}

TEST(ControlArrivals, WaitForEarlierOnesOfTheirPeerOnly) {
  ControlArrivals arrivals;
  auto& large = announce(arrivals, 1, 10);
  announce(arrivals, 1, 11).complete();
  announce(arrivals, 2, 20).complete();
  EXPECT_THAT(take_all(arrivals), ElementsAre(std::pair(2, std::vector{20})));
  large.complete();
  EXPECT_THAT(take_all(arrivals),
              ElementsAre(std::pair(1, std::vector{10}), std::pair(1, std::vector{11})));
}

TEST(ControlArrivals, OfEmptyBytesAreFramesAndDroppedOnesAreNot) {
  ControlArrivals arrivals;
  auto& goodbye = arrivals.announce(1, 0);
  goodbye.drop();
  arrivals.announce(2, 0).complete();
  goodbye.complete();
  EXPECT_THAT(take_all(arrivals), ElementsAre(std::pair(2, std::vector<int>{})));
  arrivals.announce(3, 1).complete();
  arrivals.clear();
  EXPECT_THAT(take_all(arrivals), IsEmpty());
}

// Receives complete in any order, but each peer's frames stay in the order of announcement.
TEST(ControlArrivals, KeepTheOrderOfEachPeerForAnyOrderOfCompletion) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    ControlArrivals arrivals;
    std::deque<ControlArrivals::Arrival*> open;
    std::vector<int> announced(3), taken(3);
    const auto take = [&] {
      for (const auto& [peer, bytes] : take_all(arrivals)) {
        ASSERT_EQ(bytes, std::vector{taken[static_cast<std::size_t>(peer)]++}) << "seed " << seed;
      }
    };
    for (int step = 0; step < 100; ++step) {
      if (random() % 2 == 0) {
        const int peer = static_cast<int>(random() % 3);
        open.push_back(&announce(arrivals, peer, announced[static_cast<std::size_t>(peer)]++));
      } else if (!open.empty()) {
        std::swap(open.front(), open[random() % open.size()]);
        open.front()->complete();
        open.pop_front();
      }
      if (random() % 3 == 0) take();
    }
    for (ControlArrivals::Arrival* arrival : open) arrival->complete();
    take();
    EXPECT_EQ(taken, announced) << "seed " << seed;
  }
}

std::vector<std::byte> bytes_of(std::initializer_list<int> values) {
  std::vector<std::byte> bytes;
  for (int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

ControlFrame addressed(int peer, ControlDemux::Number number, const std::vector<std::byte>& bytes) {
  ControlFrame frame{.peer = peer, .bytes = {}};
  ControlDemux::address(number, bytes, frame.bytes);
  return frame;
}

TEST(ControlDemux, PutsFramesIntoTheirInboxes) {
  ControlDemux sorted;
  ControlInbox founders, group;
  ASSERT_EQ(sorted.open(founders), ControlDemux::kCreators);
  const ControlDemux::Number number = sorted.open(group);
  ControlFrame first = addressed(3, number, bytes_of({7, 8}));
  ControlFrame second = addressed(1, ControlDemux::kCreators, {});
  EXPECT_TRUE(sorted.take(first));
  EXPECT_TRUE(sorted.take(second));
  ASSERT_EQ(group.size(), 1u);
  EXPECT_EQ(group.front().peer, 3);
  EXPECT_EQ(group.front().bytes, bytes_of({7, 8}));
  ASSERT_EQ(founders.size(), 1u);
  EXPECT_TRUE(founders.front().bytes.empty());
}

TEST(ControlDemux, LeavesFramesOfTheJobAlone) {
  ControlDemux sorted;
  ControlFrame frame{.peer = 0, .bytes = bytes_of({1, 2, 3, 4, 5, 6, 7, 8, 9, 10})};
  EXPECT_FALSE(sorted.take(frame));
  EXPECT_EQ(frame.bytes.size(), 10u);
  ControlFrame shorter{.peer = 0, .bytes = bytes_of({255})};
  EXPECT_FALSE(sorted.take(shorter));
}

TEST(ControlDemux, DropsFramesOfGroupsThatHaveEnded) {
  ControlDemux sorted;
  ControlInbox founders, old_group, new_group;
  sorted.open(founders);
  const ControlDemux::Number old_number = sorted.open(old_group);
  sorted.close(old_number);
  EXPECT_NE(sorted.open(new_group), old_number);
  ControlFrame late = addressed(2, old_number, bytes_of({1}));
  EXPECT_TRUE(sorted.take(late));
  EXPECT_TRUE(old_group.empty());
  EXPECT_TRUE(new_group.empty());
}

}  // namespace

}  // namespace kolo
