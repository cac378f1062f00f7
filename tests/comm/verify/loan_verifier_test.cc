#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "comm/algorithms/compile.h"
#include "comm/verify/verifier.h"
#include "tests/support/compiled_schedules.h"

namespace kolo {
namespace {

using testing::HasSubstr;

/// Two ranks of a node lend each other their parts of an all-gather.
class LoanVerifier : public testing::Test {
 protected:
  LoanVerifier() {
    for (int rank = 0; rank < 2; ++rank) {
      schedules_.push_back(
          compile(rank, goal_, layout_, grid_, test::with_algorithm(options(), "direct")));
    }
  }

  static CompileOptions options() {
    CompileOptions options;
    options.link_costs.memory.latency_us = 0;  // So that all are lent,
    options.link_costs.private_read_us = 0;    // wherever they are.
    return options;
  }

  std::string complaint() const { return verify(schedules_, grid_, goal_).value_or("none"); }

  Step& first(int rank, StepKind kind) {
    auto& steps = schedules_[static_cast<std::size_t>(rank)].steps;
    return *std::ranges::find(steps, kind, &Step::kind);
  }

  const std::vector<std::size_t> counts_{10, 10};
  const Goal goal_ = Goal::all_gather(counts_);
  const BucketLayout layout_{.count = 20, .placement = Placement::kUser};
  const ProcessGrid grid_ = ProcessGrid::with_node_sizes({2});
  std::vector<Schedule> schedules_;
};

TEST_F(LoanVerifier, AcceptsWhatIsReadInTime) {
  ASSERT_EQ(first(0, StepKind::kPack).target.region, Region::kLent);
  EXPECT_EQ(complaint(), "none");
}

TEST_F(LoanVerifier, AsksForAReply) {
  auto& steps = schedules_[0].steps;
  std::erase_if(
      steps, [](const Step& step) { return step.kind == StepKind::kAwait && step.ordinal == 1; });
  ASSERT_EQ(std::erase_if(schedules_[1].steps,
                          [](const Step& step) {
                            return step.kind == StepKind::kSignal && step.ordinal == 1;
                          }),
            1U);
  EXPECT_THAT(complaint(), HasSubstr("touches memory of rank 0 after it ends"));
}

TEST_F(LoanVerifier, AsksForTheFlag) {
  first(1, StepKind::kUnpack).after.clear();
  EXPECT_THAT(complaint(), HasSubstr("in no fixed order"));
}

TEST_F(LoanVerifier, KnowsThatTensorsAreLent) {
  // Rank 0 receives something over what rank 1 may still read.
  Step over = first(0, StepKind::kUnpack);
  const Step& lent = first(0, StepKind::kPack);
  over.target = lent.sources[0];
  over.after = {static_cast<StepId>(&lent - schedules_[0].steps.data())};
  over.sources = {{0, Region::kStaging, lent.target.slot, over.target.count}};
  schedules_[0].steps.push_back(over);
  EXPECT_THAT(complaint(), HasSubstr("in no fixed order"));
}

TEST_F(LoanVerifier, ComparesWhatIsLentWithWhatIsSaid) {
  first(0, StepKind::kPack).target.offset = 1;
  EXPECT_THAT(complaint(), HasSubstr("lends other elements than it says"));
}

TEST_F(LoanVerifier, KnowsTheSlot) {
  first(0, StepKind::kPack).target.slot += 1;
  EXPECT_THAT(complaint(), testing::AnyOf(HasSubstr("uses what nobody wrote"),
                                          HasSubstr("lends by a slot beyond the end")));
}

TEST_F(LoanVerifier, OnlyUnpacksWhatIsLentForCopies) {
  first(1, StepKind::kUnpack).kind = StepKind::kReduce;
  EXPECT_THAT(complaint(), HasSubstr("works with what is lent for copies"));
}

TEST_F(LoanVerifier, LendsNothingThatIsCast) {
  for (Schedule& schedule : schedules_) schedule.layout.placement = Placement::kStaged;
  EXPECT_THAT(complaint(), HasSubstr("lends elements that are cast"));
}

}  // namespace
}  // namespace kolo
