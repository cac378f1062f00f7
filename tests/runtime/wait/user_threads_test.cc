#include "runtime/wait/user_threads.h"

#include <gtest/gtest.h>

#include <latch>
#include <thread>

namespace kolo {
namespace {

TEST(UserThreads, CountsEachThreadOnceWhileItRuns) {
  const UserThreads threads, others;
  EXPECT_EQ(*threads.count(), 0);
  threads.enter();
  threads.enter();
  EXPECT_EQ(*threads.count(), 1);
  std::latch entered(1), leave(1);
  std::thread second([&] {
    threads.enter();
    others.enter();
    threads.enter();
    entered.count_down();
    leave.wait();
  });
  entered.wait();
  EXPECT_EQ(*threads.count(), 2);
  EXPECT_EQ(*others.count(), 1);
  leave.count_down();
  second.join();
  EXPECT_EQ(*threads.count(), 1);
  EXPECT_EQ(*others.count(), 0);
}

TEST(UserThreads, CountsNoThreadThatHasLeft) {
  const UserThreads threads, others;
  threads.leave();
  threads.enter();
  others.enter();
  threads.leave();
  threads.leave();
  EXPECT_EQ(*threads.count(), 0);
  EXPECT_EQ(*others.count(), 1);
  threads.enter();
  EXPECT_EQ(*threads.count(), 1);
}

TEST(UserThreads, CountsNoThreadThatIsExempt) {
  const UserThreads threads;
  threads.enter();
  threads.exempt();
  EXPECT_EQ(*threads.count(), 0);
  threads.enter();
  EXPECT_EQ(*threads.count(), 0);
}

TEST(UserThreads, MayEndBeforeTheirThreads) {
  for (int i = 0; i < 3; ++i) {
    const UserThreads threads;
    threads.enter();
    EXPECT_EQ(*threads.count(), 1);
  }
}

}  // namespace
}  // namespace kolo
