#include "comm/transport/control_arrivals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <random>
#include <utility>
#include <vector>

namespace kolo {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Taken = std::vector<std::pair<int, std::vector<int>>>;  ///< Peers and bytes, in order.

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

// Whatever completes when: each peer's frames come in the order in which they were announced.
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

}  // namespace
}  // namespace kolo
