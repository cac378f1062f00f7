#include "runtime/gradients/step_times.h"

#include <gtest/gtest.h>

namespace kolo {
namespace {

using std::chrono::microseconds;

constexpr DenseSteps kNothing = {};

/// A user's thread whose steps take the times that the test sets.
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
  /// Makes one step with an unknown begin and three cold ones, all shorter than later steps.
  void warm_up() {
    step(0, 0);
    for (int i = 0; i < 3; ++i) step(1, 1);
  }

 private:
  StepTimes times_;
  ManualClock clock_;
};

TEST(StepTimes, RunFromTheEndOfOneWaitToTheNext) {
  User user;
  user.start();
  user.warm_up();
  user.step(30, 12);
  EXPECT_EQ(user.times().take(), (DenseSteps{.step_us = 42, .exposed_us = 12}));
}

TEST(StepTimes, AreNotedFromStartToTakeOnly) {
  User user;
  for (int i = 0; i < 6; ++i) user.step(10, 1);
  EXPECT_EQ(user.times().take(), kNothing);
  user.start();
  user.warm_up();
  user.step(7, 1);
  EXPECT_EQ(user.times().take(), (DenseSteps{.step_us = 8, .exposed_us = 1}));
  for (int i = 0; i < 6; ++i) user.step(10, 1);
  EXPECT_EQ(user.times().take(), kNothing);
}

TEST(StepTimes, LeaveOutAStepThatIsUnderWayWhenTheyAreTaken) {
  User user;
  user.start();
  user.warm_up();
  user.step(10, 2);
  user.begin_wait(500);
  const DenseSteps taken = user.times().take();
  user.times().end_step();
  EXPECT_EQ(taken, (DenseSteps{.step_us = 12, .exposed_us = 2}));
  EXPECT_EQ(user.times().take(), kNothing);
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
  EXPECT_EQ(user.times().take(), (DenseSteps{.step_us = 37, .exposed_us = 27}));
}

TEST(StepTimes, LeaveOutWhatIsDoneBetweenTheWaitsOfAStep) {
  User user;
  user.start();
  for (int i = 0; i < 5; ++i) {
    user.compute(10);
    user.begin_wait(20);
    user.times().pause_wait();
    user.compute(5);
    user.begin_wait(7);
    user.times().pause_wait();
    user.step(1, 2);
  }
  EXPECT_EQ(user.times().take(), (DenseSteps{.step_us = 45, .exposed_us = 29}));
}

TEST(StepTimes, ThatAreTakenDuringAWaitLetItGoOn) {
  User user;
  user.start();
  user.warm_up();
  user.begin_wait(500);
  user.times().take();
  user.times().pause_wait();
  user.step(1, 1);
  EXPECT_EQ(user.times().take(), kNothing);
}

TEST(StepTimes, AreLowerQuartilesOfWarmSteps) {
  User user;
  user.start();
  user.warm_up();
  for (const int us : {60, 20, 80, 40, 50, 30, 70, 10}) user.step(us, 2 * us);
  EXPECT_EQ(user.times().take(), (DenseSteps{.step_us = 90, .exposed_us = 60}));
}

TEST(StepTimes, OfColdStepsAreNone) {
  User user;
  user.start();
  user.warm_up();
  EXPECT_EQ(user.times().take(), kNothing);
}

}  // namespace
}  // namespace kolo
