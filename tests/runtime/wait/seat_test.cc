#include "runtime/wait/seat.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace kolo {
namespace {

TEST(Seat, IsForOneAtATime) {
  Seat seat;
  EXPECT_EQ(seat.take(), Seat::Take::kTaken);
  EXPECT_EQ(seat.take(), Seat::Take::kRefused);
  EXPECT_EQ(seat.end_watch(), Seat::Take::kRefused);
  EXPECT_EQ(seat.leave(), Seat::Leave::kLeft);
  EXPECT_EQ(seat.end_watch(), Seat::Take::kTaken);
  EXPECT_EQ(seat.take(), Seat::Take::kRefused);
}

TEST(Seat, TellsTheDriverOfACallBeforeItLeaves) {
  Seat seat;
  EXPECT_FALSE(seat.call()) << "nobody sits";
  EXPECT_EQ(seat.take(), Seat::Take::kTaken);
  EXPECT_TRUE(seat.call());
  EXPECT_TRUE(seat.call());
  EXPECT_EQ(seat.leave(), Seat::Leave::kCalled);
  EXPECT_EQ(seat.leave(), Seat::Leave::kLeft) << "one answer for all calls";
}

TEST(Seat, IsArmedWhileItIsFreeAndWatched) {
  Seat seat;
  EXPECT_EQ(seat.end_watch(), Seat::Take::kTaken);
  EXPECT_EQ(seat.leave_to_watch(), Seat::Leave::kLeft);
  EXPECT_EQ(seat.take(), Seat::Take::kTakenArmed);
  EXPECT_TRUE(seat.is_watched());
  EXPECT_EQ(seat.leave_watched(), Seat::Leave::kLeft);
  EXPECT_EQ(seat.end_watch(), Seat::Take::kTakenArmed);
  EXPECT_FALSE(seat.is_watched());
}

TEST(Seat, AWatchThatEndsWhileAUserDrivesDoesNotGoOn) {
  Seat seat;
  EXPECT_EQ(seat.end_watch(), Seat::Take::kTaken);
  EXPECT_EQ(seat.leave_to_watch(), Seat::Leave::kLeft);
  EXPECT_EQ(seat.take(), Seat::Take::kTakenArmed);
  EXPECT_EQ(seat.end_watch(), Seat::Take::kRefused);
  EXPECT_EQ(seat.leave_watched(), Seat::Leave::kNotWatched);
  EXPECT_EQ(seat.leave(), Seat::Leave::kLeft);
  EXPECT_EQ(seat.take(), Seat::Take::kTaken);
}

TEST(Seat, IsGivenUpByTheEngineThreadForAUser) {
  Seat seat;
  ASSERT_EQ(seat.end_watch(), Seat::Take::kTaken);
  std::atomic<bool> drove{false};
  std::thread user([&] {
    while (seat.take() == Seat::Take::kRefused) EXPECT_TRUE(seat.await_engine());
    EXPECT_FALSE(seat.await_engine()) << "a user sits";
    drove = true;
    seat.leave();
  });
  while (!seat.is_wanted()) std::this_thread::yield();
  EXPECT_FALSE(drove);
  EXPECT_EQ(seat.leave(), Seat::Leave::kLeft);
  user.join();
  EXPECT_TRUE(drove);
}

TEST(Seat, WakesTheWatchdogWhenSomebodySits) {
  Seat seat;
  std::atomic<bool> is_over{false};
  std::atomic<int> woken{0};
  std::thread watchdog([&] {
    while (!is_over) woken += seat.await_driver(is_over) ? 1 : 0;
  });
  while (woken < 3) {
    if (seat.take() == Seat::Take::kRefused) ADD_FAILURE() << "nobody sat";
    EXPECT_TRUE(seat.is_taken());
    EXPECT_EQ(seat.leave(), Seat::Leave::kLeft);
    ASSERT_EQ(seat.end_watch(), Seat::Take::kTaken);
    EXPECT_EQ(seat.leave(), Seat::Leave::kLeft);
  }
  EXPECT_FALSE(seat.is_taken());
  is_over = true;
  seat.wake();
  watchdog.join();
}

TEST(Seat, IsNotWaitedForWhenItsDriverIsGivenUp) {
  Seat seat;
  EXPECT_FALSE(seat.give_up()) << "nobody sits";
  ASSERT_EQ(seat.end_watch(), Seat::Take::kTaken);
  std::thread user([&] { EXPECT_FALSE(seat.await_engine()); });
  while (!seat.is_wanted()) std::this_thread::yield();
  EXPECT_TRUE(seat.give_up());
  user.join();
  EXPECT_EQ(seat.leave(), Seat::Leave::kCalled) << "it has come back";
  EXPECT_EQ(seat.leave(), Seat::Leave::kLeft);
  EXPECT_EQ(seat.take(), Seat::Take::kTaken);
}

// The thread in the seat counts finished work without a lock; work that is left with the driver
// must not be forgotten when it leaves. Under ThreadSanitizer this also shows that the seat orders
// memory.
TEST(Seat, NoCallIsLostBetweenThreads) {
  constexpr int kThreads = 4;
  constexpr int kItems = 20'000;
  Seat seat;
  std::atomic<int> submitted{0};
  int done = 0;  // written by the driver
  const auto work = [&] { done = submitted.load(); };
  const auto get_up = [&] {
    do {
      work();
    } while (seat.leave() != Seat::Leave::kLeft);
  };
  std::vector<std::thread> users;
  for (int i = 0; i < kThreads; ++i) {
    users.emplace_back([&] {
      for (int item = 0; item < kItems; ++item) {
        submitted.fetch_add(1);
        for (;;) {
          if (seat.take() != Seat::Take::kRefused) {
            get_up();
            break;
          }
          if (seat.call()) break;
        }
      }
    });
  }
  for (std::thread& user : users) user.join();
  EXPECT_EQ(done, kThreads * kItems);
}

}  // namespace
}  // namespace kolo
