
#include <gmock/gmock.h>

#include "comm/algorithms/compile.h"
#include "comm/verify/verifier.h"
#include "tests/support/compiled_schedules.h"

namespace kolo {
namespace {

using testing::HasSubstr;

/// Two ranks of a node that expose to each other their parts of an all-gather.
class ExposedInputVerifier : public testing::Test {
 protected:
  ExposedInputVerifier() {
    for (int rank = 0; rank < 2; ++rank) {
      schedules_.push_back(
          compile(rank, spec_, layout_, grid_, test::with_algorithm(options(), "direct")));
    }
  }

  static CompileOptions options() {
    CompileOptions options;
    options.link_costs.memory.latency_us = 0;  // all contributions are exposed
    options.link_costs.private_read_us = 0;    // in any memory
    return options;
  }

  std::string complaint() const { return verify(schedules_, grid_, spec_).value_or("none"); }

  Step& first(int rank, StepKind kind) {
    auto& steps = schedules_[static_cast<std::size_t>(rank)].steps;
    return *std::ranges::find(steps, kind, &Step::kind);
  }

  const std::vector<std::size_t> counts_{10, 10};
  const CollectiveSpec spec_ = CollectiveSpec::all_gather(counts_);
  const BucketLayout layout_{.count = 20, .placement = Placement::kUser};
  const ProcessGrid grid_ = ProcessGrid::with_node_sizes({2});
  std::vector<Schedule> schedules_;
};

TEST_F(ExposedInputVerifier, AcceptsWhatIsReadInTime) {
  ASSERT_EQ(first(0, StepKind::kPack).target.region, Region::kExposedInput);
  EXPECT_EQ(complaint(), "none");
}

TEST_F(ExposedInputVerifier, AsksForAReply) {
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

TEST_F(ExposedInputVerifier, AsksForTheFlag) {
  first(1, StepKind::kUnpack).after.clear();
  EXPECT_THAT(complaint(), HasSubstr("in no fixed order"));
}

TEST_F(ExposedInputVerifier, KnowsThatTensorsAreExposed) {
  // Rank 0 unpacks into memory that rank 1 may still read.
  Step over = first(0, StepKind::kUnpack);
  const Step& exposed = first(0, StepKind::kPack);
  over.target = exposed.sources[0];
  over.after = {static_cast<StepId>(&exposed - schedules_[0].steps.data())};
  over.sources = {{0, Region::kStaging, exposed.target.slot, over.target.count}};
  schedules_[0].steps.push_back(over);
  EXPECT_THAT(complaint(), HasSubstr("in no fixed order"));
}

TEST_F(ExposedInputVerifier, ComparesWhatIsExposedWithWhatIsSaid) {
  first(0, StepKind::kPack).target.offset = 1;
  EXPECT_THAT(complaint(), HasSubstr("exposes other elements than it says"));
}

TEST_F(ExposedInputVerifier, KnowsTheSlot) {
  first(0, StepKind::kPack).target.slot += 1;
  EXPECT_THAT(complaint(), testing::AnyOf(HasSubstr("uses data that no step wrote"),
                                          HasSubstr("exposes by a slot beyond the end")));
}

TEST_F(ExposedInputVerifier, OnlyUnpacksWhatIsExposedForCopies) {
  first(1, StepKind::kUnpack).kind = StepKind::kReduce;
  EXPECT_THAT(complaint(), HasSubstr("works with what is exposed for copies"));
}

TEST_F(ExposedInputVerifier, ExposesNothingThatIsCast) {
  for (Schedule& schedule : schedules_) schedule.layout.placement = Placement::kStaged;
  EXPECT_THAT(complaint(), HasSubstr("exposes elements that are cast"));
}

/// Rank 1 writes a part of a gather, or its share of a sum, directly to memory that rank 0 exposes.
class ExposedResultVerifier : public testing::Test {
 protected:
  explicit ExposedResultVerifier(
      CollectiveSpec spec = CollectiveSpec::gather(0, std::vector<std::size_t>{32, 32}))
      : spec_(std::move(spec)) {
    CompileOptions options;
    options.link_costs.memory.latency_us = 0;  // any size is worth an exposure
    options.link_costs.private_read_us = 0;    // in any memory
    for (int rank = 0; rank < 2; ++rank) {
      schedules_.push_back(
          compile(rank, spec_, layout_, grid_, test::with_algorithm(options, "direct")));
    }
  }

  std::string complaint() const { return verify(schedules_, grid_, spec_).value_or("none"); }

  Step& exposure() {
    return *std::ranges::find(schedules_[0].steps, StepKind::kExpose, &Step::kind);
  }
  /// Returns the step that writes to the exposed memory.
  Step& put() {
    return *std::ranges::find_if(schedules_[1].steps, [](const Step& step) {
      return step.target.region == Region::kExposedResult;
    });
  }
  /// Returns the step that reads the exposed elements.
  Step& take() {
    return *std::ranges::find_if(schedules_[0].steps, [](const Step& step) {
      return !step.sources.empty() && step.sources[0].region == Region::kExposedResult;
    });
  }

  const CollectiveSpec spec_;
  const BucketLayout layout_{
      .count = 64, .placement = Placement::kUser, .out_of_place = true, .in_arenas = true};
  const ProcessGrid grid_ = ProcessGrid::with_node_sizes({2});
  std::vector<Schedule> schedules_;
};

class ExposedSum : public ExposedResultVerifier {
 protected:
  ExposedSum() : ExposedResultVerifier(CollectiveSpec::reduce(0, 2, 64)) {}
};

TEST_F(ExposedResultVerifier, AcceptsWhatIsWrittenInTime) {
  EXPECT_EQ(put().kind, StepKind::kPack);
  EXPECT_TRUE(exposure().for_copies);
  EXPECT_EQ(complaint(), "none");
}

TEST_F(ExposedSum, AcceptsWhatIsWrittenInTime) {
  EXPECT_EQ(put().kind, StepKind::kReduce);
  EXPECT_FALSE(exposure().for_copies);
  EXPECT_EQ(complaint(), "none");
}

TEST_F(ExposedResultVerifier, AsksForTheFlagBeforeItIsWritten) {
  put().after.clear();
  EXPECT_THAT(complaint(), HasSubstr("in no fixed order"));
}

TEST_F(ExposedResultVerifier, AsksForTheFlagBeforeItIsTaken) {
  take().after.clear();
  EXPECT_THAT(complaint(), HasSubstr("in no fixed order"));
}

TEST_F(ExposedResultVerifier, KnowsThatItMayBeInTheSlot) {
  Step& step = take();
  step.kind = StepKind::kAwait;  // the flag of another step, which is already raised
  step.peer = 1;
  step.sources.clear();
  step.target = {};
  step.ordinal = std::ranges::find(schedules_[0].steps, StepKind::kAwait, &Step::kind)->ordinal;
  EXPECT_NE(complaint(), "none");
}

TEST_F(ExposedResultVerifier, KnowsWhatIsExposed) {
  exposure().target.offset -= 1;
  EXPECT_THAT(complaint(), HasSubstr("writes what is not exposed"));
}

TEST_F(ExposedResultVerifier, TakesWhatItHasExposed) {
  take().target.offset -= 1;
  EXPECT_THAT(complaint(), HasSubstr("reads what is exposed"));
}

TEST_F(ExposedResultVerifier, OnlyPacksToWhatIsExposedForCopies) {
  Step& step = put();
  step.kind = StepKind::kReduce;
  EXPECT_THAT(complaint(), HasSubstr("works with what is exposed for copies"));
}

TEST_F(ExposedResultVerifier, ExposesNothingThatIsCast) {
  for (Schedule& schedule : schedules_) schedule.layout.placement = Placement::kStaged;
  EXPECT_THAT(complaint(), HasSubstr("exposes elements that are cast"));
}

TEST_F(ExposedResultVerifier, KnowsThatTheTensorsMayBeWritten) {
  // Rank 0 writes to memory that rank 1 may write at the same time.
  Step over = *std::ranges::find_if(schedules_[0].steps, [](const Step& step) {
    return step.kind == StepKind::kUnpack && step.sources[0].region == Region::kInput;
  });
  over.target.offset = over.sources[0].offset = exposure().target.offset;
  over.target.count = over.sources[0].count = 1;
  over.after.clear();
  schedules_[0].steps.push_back(over);
  EXPECT_NE(complaint(), "none");
}

/// Ranks 1 and 2 pass contributions to rank 0, and learn in the next iteration that it has read
/// them.
class TurnsVerifier : public testing::Test {
 protected:
  TurnsVerifier() {
    for (int rank = 0; rank < 3; ++rank) {
      schedules_.push_back(compile(rank, spec_, layout_, grid_, {.algorithm = "direct"}));
    }
  }

  std::string complaint() const { return verify(schedules_, grid_, spec_).value_or("none"); }

  std::vector<Step>& steps(std::size_t rank) { return schedules_[rank].steps; }
  Step& first(std::size_t rank, StepKind kind) {
    return *std::ranges::find(steps(rank), kind, &Step::kind);
  }
  /// Returns the step by which rank 0 signals `rank` that it has read the contribution.
  std::vector<Step>::iterator reply_to(int rank) {
    return std::ranges::find_if(steps(0), [&](const Step& step) {
      return step.kind == StepKind::kSignal && step.peer == rank;
    });
  }

  const CollectiveSpec spec_ = CollectiveSpec::reduce(0, 3, 20);
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
