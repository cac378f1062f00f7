#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "comm/algorithms/compile.h"
#include "comm/verify/verifier.h"

namespace kolo {
namespace {

using testing::HasSubstr;

/// Ranks 1 and 2 hand rank 0 a contribution, and hear in the next iteration that it was read.
class TurnsVerifier : public testing::Test {
 protected:
  TurnsVerifier() {
    for (int rank = 0; rank < 3; ++rank) {
      schedules_.push_back(compile(rank, goal_, layout_, grid_, {.algorithm = "direct"}));
    }
  }

  std::string complaint() const { return verify(schedules_, grid_, goal_).value_or("none"); }

  std::vector<Step>& steps(std::size_t rank) { return schedules_[rank].steps; }
  Step& first(std::size_t rank, StepKind kind) {
    return *std::ranges::find(steps(rank), kind, &Step::kind);
  }
  /// Rank 0 tells `rank` that it has read what it gave.
  std::vector<Step>::iterator reply_to(int rank) {
    return std::ranges::find_if(steps(0), [&](const Step& step) {
      return step.kind == StepKind::kSignal && step.peer == rank;
    });
  }

  const Goal goal_ = Goal::reduce(0, 3, 20);
  const BucketLayout layout_{.count = 20, .placement = Placement::kUser};
  const ProcessGrid grid_ = ProcessGrid::with_node_sizes({3});
  std::vector<Schedule> schedules_;
};

TEST_F(TurnsVerifier, AcceptsALateReply) {
  EXPECT_EQ(first(1, StepKind::kAwait).lag, 1U);
  EXPECT_EQ(schedules_[1].staging_turns, 2U);
  EXPECT_EQ(complaint(), "none");
}

TEST_F(TurnsVerifier, AsksForTheReply) {
  std::erase_if(steps(2), [](const Step& step) { return step.kind == StepKind::kAwait; });
  steps(0).erase(reply_to(2));
  EXPECT_THAT(complaint(), HasSubstr("touches memory of rank 2 after it ends"));
}

TEST_F(TurnsVerifier, AsksForAReplyAfterTheLastUse) {
  reply_to(2)->after.clear();
  EXPECT_THAT(complaint(), HasSubstr("touches memory of rank 2 after it ends"));
}

TEST_F(TurnsVerifier, AsksForMoreTurnsThanRepliesAreLate) {
  first(1, StepKind::kAwait).lag = 2;
  EXPECT_THAT(complaint(), HasSubstr("waits for 2 iterations ago, with 2 turns"));
}

TEST_F(TurnsVerifier, AsksForWhatIsNewInTime) {
  first(0, StepKind::kAwait).lag = 1;
  EXPECT_THAT(complaint(), HasSubstr("in no fixed order"));
}

}  // namespace
}  // namespace kolo
