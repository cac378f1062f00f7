#include "comm/transport/doorbell.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace kolo {
namespace {

using News = Doorbell::News;
using Rest = Doorbell::Rest;

constexpr Duration kLong = std::chrono::seconds(30);

class DoorbellTest : public testing::Test {
 protected:
  bool is_raised() const {
    pollfd waited{.fd = fd_.get(), .events = POLLIN, .revents = 0};
    return ::poll(&waited, 1, 0) == 1;
  }
  void ring(News news) { bell_.ring(news, fd_.get()); }
  void signal() { bell_.signal(fd_.get()); }

  Doorbell bell_;
  FileDescriptor fd_ = make_event_fd();
};

TEST_F(DoorbellTest, CollectsNewsUntilTheyAreAnswered) {
  EXPECT_EQ(bell_.answer(), 0u);
  ring(News::kSignal);
  EXPECT_EQ(bell_.answer(), static_cast<std::uint32_t>(News::kSignal));
  ring(News::kSignal);
  ring(News::kMail);
  EXPECT_EQ(bell_.answer(), static_cast<std::uint32_t>(News::kMail));
  EXPECT_EQ(bell_.answer(), 0u);
  EXPECT_FALSE(is_raised()) << "an owner that is awake costs no system call";
}

TEST_F(DoorbellTest, SignalsAddNewsOnceTheOwnerListens) {
  signal();
  EXPECT_EQ(bell_.answer(), 0u) << "the owner looks by itself";
  EXPECT_FALSE(bell_.listen()) << "there may be something";
  EXPECT_FALSE(bell_.listen()) << "nobody has looked since";
  EXPECT_EQ(bell_.answer(), 0u);
  EXPECT_TRUE(bell_.listen());
  signal();
  EXPECT_FALSE(bell_.park(Rest::kParked));
  EXPECT_EQ(bell_.answer(), static_cast<std::uint32_t>(News::kSignal));
  signal();
  EXPECT_EQ(bell_.answer(), 0u) << "an answer ends listening";
  EXPECT_FALSE(bell_.listen());
}

TEST_F(DoorbellTest, SignalsWakeAnOwnerThatRests) {
  std::ignore = bell_.listen();
  bell_.answer();
  ASSERT_TRUE(bell_.park(Rest::kParked));
  signal();
  EXPECT_TRUE(is_raised());
  bell_.unpark();
  EXPECT_FALSE(bell_.listen()) << "the end of a rest ends listening";
}

TEST_F(DoorbellTest, RefusesRestWhenThereAreNews) {
  ring(News::kSignal);
  EXPECT_FALSE(bell_.park(Rest::kParked));
  EXPECT_FALSE(bell_.park(Rest::kIdle));
  EXPECT_TRUE(bell_.sleep(kLong)) << "at once";
  bell_.answer();
  EXPECT_TRUE(bell_.park(Rest::kParked));
}

TEST_F(DoorbellTest, WakesAParkedOwnerOnce) {
  ASSERT_TRUE(bell_.park(Rest::kParked));
  ring(News::kSignal);
  EXPECT_TRUE(is_raised());
  drain_event(fd_.get());
  ring(News::kUrgent);
  EXPECT_FALSE(is_raised()) << "it is on its way";
  bell_.unpark();
  EXPECT_EQ(bell_.answer(), static_cast<std::uint32_t>(News::kUrgent)) << "news outlast the rest";
}

TEST_F(DoorbellTest, WakesAnIdleOwnerForUrgentNewsOnly) {
  ASSERT_TRUE(bell_.park(Rest::kIdle));
  ring(News::kSignal);
  ring(News::kMail);
  EXPECT_FALSE(is_raised());
  ring(News::kUrgent);
  EXPECT_TRUE(is_raised());
  bell_.unpark();
  EXPECT_NE(bell_.answer(), 0u);
}

TEST_F(DoorbellTest, SleepEndsWithItsLimit) {
  EXPECT_FALSE(bell_.sleep(std::chrono::microseconds(10)));
  EXPECT_TRUE(bell_.park(Rest::kParked)) << "it is quiet again";
}

// Two threads alternate by a flag. A lost wake-up would exceed the time limit.
TEST_F(DoorbellTest, NoWakeUpOfASleeperIsLost) {
  constexpr int kTurns = 20'000;
  Doorbell bells[2];
  std::atomic<int> turn{0};
  std::atomic<bool> lost{false};
  const auto play = [&](int self) {
    for (int mine = self; mine < kTurns && !lost; mine += 2) {
      while (turn.load(std::memory_order_acquire) != mine && !lost) {
        bells[self].answer();
        if (turn.load(std::memory_order_acquire) == mine || !bells[self].listen()) continue;
        const auto began = std::chrono::steady_clock::now();
        bells[self].sleep(kLong);
        if (std::chrono::steady_clock::now() - began >= kLong) lost = true;
      }
      turn.store(mine + 1, std::memory_order_release);
      bells[1 - self].signal(-1);
    }
  };
  std::thread other([&] { play(1); });
  play(0);
  other.join();
  EXPECT_FALSE(lost);
}

}  // namespace
}  // namespace kolo
