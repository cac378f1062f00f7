#include "runtime/engine/step_times.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kolo {
namespace {

using std::chrono::microseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// A user's thread whose steps take as long as the test says.
class User {
 public:
  StepTimes& times() { return times_; }
  void start() { times_.start(clock_); }

  void compute(int us) { clock_.advance(microseconds(us)); }
  void begin_wait(int us) {
    times_.begin_wait();
    clock_.advance(microseconds(us));
  }
  void step(int compute_us, int wait_us) {
    compute(compute_us);
    begin_wait(wait_us);
    times_.end_step();
  }

 private:
  StepTimes times_;
  ManualClock clock_;
};

TEST(StepTimes, RunFromTheEndOfOneWaitToTheNext) {
  User user;
  user.start();
  user.step(1000, 1000);  // Nobody knows when it began.
  user.step(30, 12);
  user.step(20, 5);
  EXPECT_THAT(user.times().take(), ElementsAre(42, 25));
  EXPECT_THAT(user.times().take(), IsEmpty());
}

TEST(StepTimes, AreNotNotedUnlessSomebodyWantsToKnow) {
  User user;
  user.step(10, 1);
  user.step(10, 1);
  EXPECT_THAT(user.times().take(), IsEmpty());
  user.start();
  user.step(10, 1);
  user.times().stop();
  user.step(10, 1);
  user.start();
  user.step(10, 1);  // It began while nobody wanted to know.
  EXPECT_THAT(user.times().take(), IsEmpty());
  user.step(7, 1);
  EXPECT_THAT(user.times().take(), ElementsAre(8));
}

TEST(StepTimes, LeaveOutAStepThatEndsWithAVote) {
  User user;
  user.start();
  user.step(10, 1);
  user.step(10, 2);
  user.begin_wait(500);
  user.times().end_step_uncounted();
  user.step(10, 3);
  EXPECT_THAT(user.times().take(), ElementsAre(12, 13));
}

TEST(StepTimes, CountAWaitThatIsTriedAgainFromItsFirstCall) {
  User user;
  user.start();
  for (int i = 0; i < 5; ++i) {
    user.compute(10);
    user.begin_wait(20);
    user.begin_wait(7);
    user.times().end_step();
  }
  EXPECT_EQ(user.times().take_dense(), (DenseSteps{.step_us = 37, .exposed_us = 27}));
}

TEST(StepTimes, OfDenseStepsAreLowerQuartilesWithoutTheFirst) {
  User user;
  user.start();
  user.step(0, 0);
  for (int i = 0; i < 3; ++i) user.step(1, 1);  // Cold ones, here the shortest.
  for (const int us : {60, 20, 80, 40, 50, 30, 70, 10}) user.step(us, 2 * us);
  EXPECT_EQ(user.times().take_dense(), (DenseSteps{.step_us = 90, .exposed_us = 60}));
  EXPECT_EQ(user.times().take_dense(), DenseSteps{});
}

TEST(StepTimes, OfColdDenseStepsAreNone) {
  User user;
  user.start();
  for (int i = 0; i < 4; ++i) user.step(10, 10);
  EXPECT_EQ(user.times().take_dense(), DenseSteps{});
}

}  // namespace
}  // namespace kolo
