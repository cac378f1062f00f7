#include "runtime/wait/progress_lock.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace kolo {
namespace {

TEST(ProgressLock, IsForOneAtATime) {
  ProgressLock progress_lock;
  EXPECT_EQ(progress_lock.take(), ProgressLock::Take::kTaken);
  EXPECT_EQ(progress_lock.take(), ProgressLock::Take::kRefused);
  EXPECT_EQ(progress_lock.end_watch(), ProgressLock::Take::kRefused);
  EXPECT_EQ(progress_lock.leave(), ProgressLock::Leave::kLeft);
  EXPECT_EQ(progress_lock.end_watch(), ProgressLock::Take::kTaken);
  EXPECT_EQ(progress_lock.take(), ProgressLock::Take::kRefused);
}

TEST(ProgressLock, TellsTheDriverOfACallBeforeItLeaves) {
  ProgressLock progress_lock;
  EXPECT_FALSE(progress_lock.call()) << "nobody holds it";
  EXPECT_EQ(progress_lock.take(), ProgressLock::Take::kTaken);
  EXPECT_TRUE(progress_lock.call());
  EXPECT_TRUE(progress_lock.call());
  EXPECT_EQ(progress_lock.leave(), ProgressLock::Leave::kCalled);
  EXPECT_EQ(progress_lock.leave(), ProgressLock::Leave::kLeft) << "one answer for all calls";
}

TEST(ProgressLock, IsArmedWhileItIsFreeAndWatched) {
  ProgressLock progress_lock;
  EXPECT_EQ(progress_lock.end_watch(), ProgressLock::Take::kTaken);
  EXPECT_EQ(progress_lock.leave_to_watch(), ProgressLock::Leave::kLeft);
  EXPECT_EQ(progress_lock.take(), ProgressLock::Take::kTakenArmed);
  EXPECT_TRUE(progress_lock.is_watched());
  EXPECT_EQ(progress_lock.leave_watched(), ProgressLock::Leave::kLeft);
  EXPECT_EQ(progress_lock.end_watch(), ProgressLock::Take::kTakenArmed);
  EXPECT_FALSE(progress_lock.is_watched());
}

TEST(ProgressLock, AWatchThatEndsWhileAUserDrivesDoesNotGoOn) {
  ProgressLock progress_lock;
  EXPECT_EQ(progress_lock.end_watch(), ProgressLock::Take::kTaken);
  EXPECT_EQ(progress_lock.leave_to_watch(), ProgressLock::Leave::kLeft);
  EXPECT_EQ(progress_lock.take(), ProgressLock::Take::kTakenArmed);
  EXPECT_EQ(progress_lock.end_watch(), ProgressLock::Take::kRefused);
  EXPECT_EQ(progress_lock.leave_watched(), ProgressLock::Leave::kNotWatched);
  EXPECT_EQ(progress_lock.leave(), ProgressLock::Leave::kLeft);
  EXPECT_EQ(progress_lock.take(), ProgressLock::Take::kTaken);
}

TEST(ProgressLock, IsGivenUpByTheEngineThreadForAUser) {
  ProgressLock progress_lock;
  ASSERT_EQ(progress_lock.end_watch(), ProgressLock::Take::kTaken);
  std::atomic<bool> drove{false};
  std::thread user([&] {
    while (progress_lock.take() == ProgressLock::Take::kRefused)
      EXPECT_TRUE(progress_lock.await_engine());
    EXPECT_FALSE(progress_lock.await_engine()) << "a user holds it";
    drove = true;
    progress_lock.leave();
  });
  while (!progress_lock.is_wanted()) std::this_thread::yield();
  EXPECT_FALSE(drove);
  EXPECT_EQ(progress_lock.leave(), ProgressLock::Leave::kLeft);
  user.join();
  EXPECT_TRUE(drove);
}

TEST(ProgressLock, WakesTheWatchdogWhenSomebodySits) {
  ProgressLock progress_lock;
  std::atomic<bool> is_over{false};
  std::atomic<int> woken{0};
  std::thread watchdog([&] {
    while (!is_over) woken += progress_lock.await_holder(is_over) ? 1 : 0;
  });
  while (woken < 3) {
    if (progress_lock.take() == ProgressLock::Take::kRefused) ADD_FAILURE() << "nobody held it";
    EXPECT_TRUE(progress_lock.is_taken());
    EXPECT_EQ(progress_lock.leave(), ProgressLock::Leave::kLeft);
    ASSERT_EQ(progress_lock.end_watch(), ProgressLock::Take::kTaken);
    EXPECT_EQ(progress_lock.leave(), ProgressLock::Leave::kLeft);
  }
  EXPECT_FALSE(progress_lock.is_taken());
  is_over = true;
  progress_lock.wake();
  watchdog.join();
}

TEST(ProgressLock, IsNotWaitedForWhenItsDriverIsGivenUp) {
  ProgressLock progress_lock;
  EXPECT_FALSE(progress_lock.give_up()) << "nobody holds it";
  ASSERT_EQ(progress_lock.end_watch(), ProgressLock::Take::kTaken);
  std::thread user([&] { EXPECT_FALSE(progress_lock.await_engine()); });
  while (!progress_lock.is_wanted()) std::this_thread::yield();
  EXPECT_TRUE(progress_lock.give_up());
  user.join();
  EXPECT_EQ(progress_lock.leave(), ProgressLock::Leave::kCalled) << "it has come back";
  EXPECT_EQ(progress_lock.leave(), ProgressLock::Leave::kLeft);
  EXPECT_EQ(progress_lock.take(), ProgressLock::Take::kTaken);
}

// The thread that holds the lock counts work without another lock. Work that other threads leave to
// it must not be lost when it leaves. Under ThreadSanitizer, this also shows that the lock orders
// memory.
TEST(ProgressLock, NoCallIsLostBetweenThreads) {
  constexpr int kThreads = 4;
  constexpr int kItems = 20'000;
  ProgressLock progress_lock;
  std::atomic<int> submitted{0};
  int done = 0;  // written by the holder
  const auto work = [&] { done = submitted.load(); };
  const auto release = [&] {
    do {
      work();
    } while (progress_lock.leave() != ProgressLock::Leave::kLeft);
  };
  std::vector<std::thread> users;
  for (int i = 0; i < kThreads; ++i) {
    users.emplace_back([&] {
      for (int item = 0; item < kItems; ++item) {
        submitted.fetch_add(1);
        for (;;) {
          if (progress_lock.take() != ProgressLock::Take::kRefused) {
            release();
            break;
          }
          if (progress_lock.call()) break;
        }
      }
    });
  }
  for (std::thread& user : users) user.join();
  EXPECT_EQ(done, kThreads * kItems);
}

}  // namespace
}  // namespace kolo
