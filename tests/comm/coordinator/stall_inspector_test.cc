#include "comm/coordinator/stall_inspector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace kolo {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

using Pending = std::vector<PendingTopic>;
using Finding = std::optional<StallInspector::Finding>;

constexpr Topic kA{1, 0}, kB{2, 0}, kC{3, 0};

PendingTopic waits(const Topic& topic, std::string text) { return {topic, true, std::move(text)}; }
PendingTopic submitted(const Topic& topic, std::string text = "") {
  return {topic, false, std::move(text)};
}

Frame report_of(const Frame& query, Pending pending) {
  return {.kind = FrameKind::kReport, .least = query.least, .pending = std::move(pending)};
}

/// One inquiry, answered by each rank with what it has pending.
Finding inquire(StallInspector& inspector, const std::vector<Pending>& pending) {
  const auto query = inspector.next_query();
  if (!query) {
    ADD_FAILURE() << "nothing is asked";
    return std::nullopt;
  }
  EXPECT_EQ(query->kind, FrameKind::kQuery);
  Finding finding;
  for (std::size_t rank = 0; rank < pending.size(); ++rank) {
    EXPECT_FALSE(finding) << "before the last report";
    finding = inspector.report(static_cast<int>(rank), report_of(*query, pending[rank]));
  }
  return finding;
}

/// A rank that is done with an eager bucket has no more of it pending, and is not stuck for it.
TEST(StallInspector, WhatIsPastAtARankIsNotMissingThere) {
  constexpr Topic kThird{bucket_key(5), 3};
  constexpr Topic kFourth{bucket_key(5), 4};
  const PendingTopic past{.topic = kThird, .text = {}, .past = true};
  StallInspector inspector(2);
  for (int inquiry = 0; inquiry < 3; ++inquiry) {
    inspector.stalled(kThird);
    EXPECT_FALSE(inquire(inspector, {{waits(kThird, "bucket 5")}, {waits(kA, "'a'"), past}}));
  }
  // Rank 1 has not come to the next round, and waits for what rank 0 has not submitted.
  const std::vector<Pending> circle = {{waits(kFourth, "bucket 5")}, {waits(kA, "'a'"), past}};
  inspector.stalled(kFourth);
  EXPECT_FALSE(inquire(inspector, circle));
  const Finding finding = inquire(inspector, circle);
  ASSERT_TRUE(finding);
  EXPECT_THAT(finding->topics, ElementsAre(kA, kFourth));
}

TEST(StallInspector, FindsACircleOfTwoInTwoInquiries) {
  StallInspector inspector(3);
  const std::vector<Pending> pending = {
      {waits(kA, "'a': all_reduce")}, {waits(kB, "'b': all_reduce")}, {submitted(kA)}};
  inspector.stalled(kA);
  EXPECT_FALSE(inquire(inspector, pending));
  const Finding finding = inquire(inspector, pending);  // Asks again by itself.
  ASSERT_TRUE(finding);
  EXPECT_THAT(finding->topics, ElementsAre(kA, kB));
  EXPECT_EQ(finding->error.code, ErrorCode::kMismatch);
  EXPECT_EQ(finding->error.what,
            "ranks wait for different tensors: rank 0 waits for 'a': all_reduce; rank 1 waits for "
            "'b': all_reduce");
  EXPECT_FALSE(inspector.next_query());
}

// 0 waits for a, which 1 lacks; 1 for b, which 2 lacks; 2 for c, which 0 lacks. No two of them wait
// for each other.
TEST(StallInspector, FindsACircleOfThreeThroughAChain) {
  StallInspector inspector(3);
  const std::vector<Pending> pending = {{waits(kA, "'a'"), submitted(kB)},
                                        {waits(kB, "'b'"), submitted(kC)},
                                        {waits(kC, "'c'"), submitted(kA)}};
  inspector.stalled(kC);
  EXPECT_FALSE(inquire(inspector, pending));
  const Finding finding = inquire(inspector, pending);
  ASSERT_TRUE(finding);
  EXPECT_THAT(finding->topics, ElementsAre(kA, kB, kC));
  EXPECT_THAT(finding->error.what,
              AllOf(HasSubstr("rank 0 waits for 'a'"), HasSubstr("rank 1 waits for 'b'"),
                    HasSubstr("rank 2 waits for 'c'")));
}

TEST(StallInspector, RanksThatWaitForTheSameAreQuotedTogether) {
  StallInspector inspector(3);
  const std::vector<Pending> pending = {
      {waits(kA, "'a'\nsecond line")}, {waits(kB, "'b'")}, {waits(kA, "'a'\nsecond line")}};
  inspector.stalled(kA);
  EXPECT_FALSE(inquire(inspector, pending));
  const Finding finding = inquire(inspector, pending);
  ASSERT_TRUE(finding);
  EXPECT_THAT(finding->error.what,
              AllOf(HasSubstr("ranks 0, 2 wait for 'a'"), HasSubstr("rank 1 waits for 'b'"),
                    Not(HasSubstr("second line"))));
}

TEST(StallInspector, ABusyRankBreaksEveryCircleHoweverOftenItIsAsked) {
  StallInspector inspector(3);
  const std::vector<Pending> chain = {{waits(kA, "'a'"), submitted(kB)},
                                      {waits(kB, "'b'"), submitted(kC)},
                                      {submitted(kC), submitted(kA)}};  // 2 computes.
  const std::vector<Pending> two_wait_for_one = {{waits(kA, "'a'")}, {waits(kA, "'a'")}, {}};
  for (int i = 0; i < 5; ++i) {
    for (const auto& pending : {chain, two_wait_for_one}) {
      inspector.stalled(kA);
      EXPECT_FALSE(inquire(inspector, pending));
      EXPECT_FALSE(inspector.next_query());  // Nothing is suspected, so nobody asks again.
    }
  }
}

TEST(StallInspector, TellsPeopleOnceWhomEverybodyHasBeenWaitingForForLong) {
  StallInspector inspector(3);
  std::vector<std::string> notes;
  for (int i = 1; i <= 3 * StallInspector::kInquiriesBeforeNote; ++i) {
    inspector.stalled(kA);
    EXPECT_FALSE(inquire(inspector, {{waits(kA, "'a'\nsecond line")}, {}, {submitted(kB)}}));
    if (const auto note = inspector.take_note()) {
      EXPECT_EQ(i, StallInspector::kInquiriesBeforeNote);
      notes.push_back(*note);
    }
  }
  EXPECT_THAT(notes, ElementsAre(AllOf(HasSubstr("ranks 1, 2"), HasSubstr("submit 'a';"))));
}

TEST(StallInspector, EverybodyHasSubmittedSoNothingIsStuck) {
  StallInspector inspector(2);
  for (int i = 0; i < 3; ++i) {
    inspector.stalled(kA);
    EXPECT_FALSE(inquire(inspector, {{waits(kA, "'a'")}, {waits(kA, "'a'")}}));
  }
}

TEST(StallInspector, ACircleThatWasGoneInBetweenIsANewSuspicion) {
  StallInspector inspector(2);
  const std::vector<Pending> circle = {{waits(kA, "'a'")}, {waits(kB, "'b'")}};
  inspector.stalled(kA);
  EXPECT_FALSE(inquire(inspector, circle));
  EXPECT_FALSE(inquire(inspector, {{waits(kA, "'a'")}, {}}));
  inspector.stalled(kA);
  EXPECT_FALSE(inquire(inspector, circle));
  EXPECT_TRUE(inquire(inspector, circle));
}

TEST(StallInspector, ACircleOfOtherTopicsIsANewSuspicion) {
  StallInspector inspector(2);
  inspector.stalled(kA);
  EXPECT_FALSE(inquire(inspector, {{waits(kA, "'a'")}, {waits(kB, "'b'")}}));
  EXPECT_FALSE(inquire(inspector, {{waits(kA, "'a'")}, {waits(kC, "'c'")}}));
  const Finding finding = inquire(inspector, {{waits(kA, "'a'")}, {waits(kC, "'c'")}});
  ASSERT_TRUE(finding);
  EXPECT_THAT(finding->topics, ElementsAre(kA, kC));
}

TEST(StallInspector, ExplainsAConflictByRanksAndBothValuesAtOnce) {
  StallInspector inspector(4);
  inspector.conflict(kA);
  const Finding finding = inquire(inspector, {{submitted(kA, "'x': float32 [64]")},
                                              {submitted(kB), submitted(kA, "'x': float32 [20]")},
                                              {submitted(kA, "'x': float32 [64]")},
                                              {submitted(kA, "'x': float32 [64]")}});
  ASSERT_TRUE(finding);
  EXPECT_THAT(finding->topics, ElementsAre(kA));
  EXPECT_EQ(finding->error.code, ErrorCode::kMismatch);
  EXPECT_EQ(finding->error.what,
            "ranks disagree: ranks 0, 2, 3 submit 'x': float32 [64]; rank 1 submits 'x': float32 "
            "[20]");
}

TEST(StallInspector, QuotesTheFirstLineThatDiffers) {
  const std::string same = "2 gradients\n'w': float32 [3]\n";
  struct Case {
    std::string other;
    const char* expected;
  };
  for (const Case& c : {Case{same + "'b': float32 [4]\n", "rank 1 submits 'b': float32 [4]"},
                        Case{same, "rank 1 submits nothing more"}}) {
    StallInspector inspector(2);
    inspector.conflict(kA);
    const Finding finding = inquire(
        inspector, {{submitted(kA, same + "'b': float32 [5]\n")}, {submitted(kA, c.other)}});
    ASSERT_TRUE(finding);
    EXPECT_THAT(finding->error.what, AllOf(HasSubstr("rank 0 submits 'b': float32 [5]"),
                                           HasSubstr(c.expected), Not(HasSubstr("'w'"))));
  }
}

TEST(StallInspector, QuotesNoMoreThanAPersonReads) {
  constexpr int kRanks = 100;
  StallInspector inspector(kRanks);
  inspector.conflict(kA);
  std::vector<Pending> pending;
  for (int rank = 0; rank < kRanks; ++rank) {
    pending.push_back({submitted(kA, "value " + std::to_string(rank))});
  }
  const Finding finding = inquire(inspector, pending);
  ASSERT_TRUE(finding);
  EXPECT_THAT(finding->error.what, testing::EndsWith("value 7; ..."));
}

TEST(StallInspector, AConflictIsAskedBeforeComplaints) {
  StallInspector inspector(1);
  inspector.stalled(kA);
  inspector.stalled(kB);
  inspector.conflict(kC);
  std::vector<Topic> asked;
  while (const auto query = inspector.next_query()) {
    asked.push_back(query->topic);
    inspector.report(0, report_of(*query, {}));
  }
  EXPECT_THAT(asked, ElementsAre(kC, kA, kB));
}

TEST(StallInspector, AComplaintIsAskedAboutOnce) {
  StallInspector inspector(1);
  inspector.stalled(kA);
  inspector.stalled(kA);
  const auto query = inspector.next_query();
  ASSERT_TRUE(query);
  EXPECT_FALSE(inspector.next_query());  // One inquiry at a time.
  inspector.stalled(kA);                 // It is being asked.
  inspector.report(0, report_of(*query, {}));
  EXPECT_FALSE(inspector.next_query());
}

TEST(StallInspector, CountsNoReportTwiceAndIgnoresStaleOnes) {
  StallInspector inspector(2);
  EXPECT_FALSE(inspector.asking());

  inspector.conflict(kA);
  inspector.conflict(kB);
  const auto first = inspector.next_query();
  ASSERT_TRUE(first);
  EXPECT_TRUE(inspector.asking());
  EXPECT_FALSE(inspector.report(1, report_of(*first, {submitted(kB, "y")})));
  EXPECT_FALSE(inspector.report(1, report_of(*first, {submitted(kB, "y")})));  // Twice is once.
  EXPECT_TRUE(inspector.report(0, report_of(*first, {submitted(kB, "x")})));
  EXPECT_FALSE(inspector.asking());

  const auto second = inspector.next_query();
  ASSERT_TRUE(second);
  EXPECT_NE(second->least, first->least);
  EXPECT_FALSE(inspector.report(0, report_of(*first, {submitted(kA, "x")})));
  EXPECT_FALSE(inspector.report(1, report_of(*first, {submitted(kA, "y")})));
  EXPECT_FALSE(inspector.report(0, report_of(*second, {submitted(kA, "x")})));
  const Finding finding = inspector.report(1, report_of(*second, {submitted(kA, "y")}));
  ASSERT_TRUE(finding);
  EXPECT_THAT(finding->error.what, StartsWith("ranks disagree: rank 0 submits x"));
  EXPECT_FALSE(inspector.report(1, report_of(*second, {})));  // After the end.
}

}  // namespace
}  // namespace kolo
