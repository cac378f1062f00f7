#include "trainer/checkpoint/checkpointer.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace kolo::trainer {
namespace {

class StopSignalsTest : public testing::TestWithParam<int> {};

TEST_P(StopSignalsTest, ASignalIsAQuestionAndMoreChangeNothing) {
  StopSignals signals;
  EXPECT_FALSE(signals.has_come());
  ::kill(::getpid(), GetParam());
  EXPECT_TRUE(signals.has_come());
  ::kill(::getpid(), GetParam());
  ::kill(::getpid(), SIGTERM);
  EXPECT_TRUE(signals.has_come());
  ::kill(::getpid(), GetParam());
}

TEST_P(StopSignalsTest, SignalsActAsBeforeOnceItIsGone) {
  { const StopSignals signals; }
  EXPECT_EXIT(::raise(GetParam()), testing::KilledBySignal(GetParam()), "");
}

INSTANTIATE_TEST_SUITE_P(Both, StopSignalsTest, testing::Values(SIGTERM, SIGUSR1));

}  // namespace
}  // namespace kolo::trainer
