#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "comm/algorithms/compile.h"
#include "comm/verify/verifier.h"
#include "tests/support/compiled_schedules.h"

namespace kolo {
namespace {

using testing::HasSubstr;

/// Rank 1 of a node puts a part of what rank 0 gathers, or sums a share for it, where rank 0 offers
/// to have it.
class OfferVerifier : public testing::Test {
 protected:
  explicit OfferVerifier(Goal goal = Goal::gather(0, std::vector<std::size_t>{32, 32}))
      : goal_(std::move(goal)) {
    CompileOptions options;
    options.link_costs.memory.latency_us = 0;  // So that every size is worth an offer,
    options.link_costs.private_read_us = 0;    // wherever it is.
    for (int rank = 0; rank < 2; ++rank) {
      schedules_.push_back(
          compile(rank, goal_, layout_, grid_, test::with_algorithm(options, "direct")));
    }
  }

  std::string complaint() const { return verify(schedules_, grid_, goal_).value_or("none"); }

  Step& offer() { return *std::ranges::find(schedules_[0].steps, StepKind::kOffer, &Step::kind); }
  /// The step that writes what is offered.
  Step& put() {
    return *std::ranges::find_if(schedules_[1].steps, [](const Step& step) {
      return step.target.region == Region::kOffered;
    });
  }
  /// The step that has what is offered.
  Step& take() {
    return *std::ranges::find_if(schedules_[0].steps, [](const Step& step) {
      return !step.sources.empty() && step.sources[0].region == Region::kOffered;
    });
  }

  const Goal goal_;
  const BucketLayout layout_{
      .count = 64, .placement = Placement::kUser, .out_of_place = true, .in_arenas = true};
  const ProcessGrid grid_ = ProcessGrid::with_node_sizes({2});
  std::vector<Schedule> schedules_;
};

class OfferedSum : public OfferVerifier {
 protected:
  OfferedSum() : OfferVerifier(Goal::reduce(0, 2, 64)) {}
};

TEST_F(OfferVerifier, AcceptsWhatIsWrittenInTime) {
  EXPECT_EQ(put().kind, StepKind::kPack);
  EXPECT_TRUE(offer().for_copies);
  EXPECT_EQ(complaint(), "none");
}

TEST_F(OfferedSum, AcceptsWhatIsWrittenInTime) {
  EXPECT_EQ(put().kind, StepKind::kReduce);
  EXPECT_FALSE(offer().for_copies);
  EXPECT_EQ(complaint(), "none");
}

TEST_F(OfferVerifier, AsksForTheFlagBeforeItIsWritten) {
  put().after.clear();
  EXPECT_THAT(complaint(), HasSubstr("in no fixed order"));
}

TEST_F(OfferVerifier, AsksForTheFlagBeforeItIsTaken) {
  take().after.clear();
  EXPECT_THAT(complaint(), HasSubstr("in no fixed order"));
}

TEST_F(OfferVerifier, KnowsThatItMayBeInTheSlot) {
  Step& step = take();
  step.kind = StepKind::kAwait;  // The flag of another step, which is there already.
  step.peer = 1;
  step.sources.clear();
  step.target = {};
  step.ordinal = std::ranges::find(schedules_[0].steps, StepKind::kAwait, &Step::kind)->ordinal;
  EXPECT_NE(complaint(), "none");
}

TEST_F(OfferVerifier, KnowsWhatIsOffered) {
  offer().target.offset -= 1;
  EXPECT_THAT(complaint(), HasSubstr("writes what is not offered"));
}

TEST_F(OfferVerifier, TakesWhatItHasOffered) {
  take().target.offset -= 1;
  EXPECT_THAT(complaint(), HasSubstr("reads what is offered"));
}

TEST_F(OfferVerifier, OnlyPacksToWhatIsOfferedForCopies) {
  Step& step = put();
  step.kind = StepKind::kReduce;
  EXPECT_THAT(complaint(), HasSubstr("works with what is offered for copies"));
}

TEST_F(OfferVerifier, OffersNothingThatIsCast) {
  for (Schedule& schedule : schedules_) schedule.layout.placement = Placement::kStaged;
  EXPECT_THAT(complaint(), testing::AnyOf(HasSubstr("offers elements that are cast"),
                                          HasSubstr("lends elements that are cast")));
}

TEST_F(OfferVerifier, KnowsThatTheTensorsMayBeWritten) {
  // Rank 0 writes what rank 1 may write at the same time.
  Step over = *std::ranges::find_if(schedules_[0].steps, [](const Step& step) {
    return step.kind == StepKind::kUnpack && step.sources[0].region == Region::kInput;
  });
  over.target.offset = over.sources[0].offset = offer().target.offset;
  over.target.count = over.sources[0].count = 1;
  over.after.clear();
  schedules_[0].steps.push_back(over);
  EXPECT_NE(complaint(), "none");
}

}  // namespace
}  // namespace kolo
