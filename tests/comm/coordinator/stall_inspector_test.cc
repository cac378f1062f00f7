#include "comm/coordinator/stall_inspector.h"

#include <gmock/gmock.h>

namespace kolo {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

using Finding = std::optional<StallInspector::Finding>;

constexpr ProposalKey kA{1, 0}, kB{2, 0}, kC{3, 0};
constexpr StallInspector::Limits kStallLimits{.confirm_after = std::chrono::seconds(1),
                                              .stall_after = std::chrono::seconds(60)};

PendingKey waits(const ProposalKey& key, std::string text) {
  return {.key = key, .blocking = true, .text = std::move(text)};
}
PendingKey submitted(const ProposalKey& key, std::string text = "") {
  return {.key = key, .text = std::move(text)};
}

/// The report of a rank. By default all of its threads wait if one of them does.
struct Pending {
  Pending(std::initializer_list<PendingKey> entries, bool other_thread_runs = false)
      : pending(entries),
        all_wait(!other_thread_runs &&
                 std::any_of(pending.begin(), pending.end(),
                             [](const PendingKey& entry) { return entry.blocking; })) {}
  std::vector<PendingKey> pending;
  bool all_wait;
};
constexpr bool kAnotherThreadRuns = true;

/// Returns the combined report of the ranks of a job.
AggregatedReport aggregated(const std::vector<Pending>& pending) {
  std::vector<AggregatedReport> reports;
  for (const Pending& of_rank : pending) {
    reports.push_back(
        report_of({.rank = static_cast<int>(reports.size())}, of_rank.pending, of_rank.all_wait));
  }
  return combine(std::move(reports));
}

/// An inspector, and the time of its next inquiry.
struct Inspection {
  explicit Inspection(int ranks, const StallInspector::Limits& limits = kStallLimits)
      : inspector(ranks, limits) {}

  /// Makes one inquiry, which each rank answers with its pending proposals.
  Finding inquire(const std::vector<Pending>& pending) {
    inspector.tick(now);
    const auto query = inspector.next_query(now);
    if (!query) {
      ADD_FAILURE() << "nothing is asked";
      return std::nullopt;
    }
    EXPECT_EQ(query->kind, FrameKind::kQuery);
    return inspector.report(aggregated(pending), now);
  }

  /// Makes the second inquiry, after a suspicion; returns its finding.
  Finding confirm(const std::vector<Pending>& pending) {
    EXPECT_FALSE(inspector.has_query()) << "asks again at once";
    now += kStallLimits.confirm_after;
    return inquire(pending);
  }

  StallInspector inspector;
  TimePoint now{};
};

/// A rank that has completed an eager bucket no longer has it pending, and does not miss it.
TEST(StallInspector, WhatIsPastAtARankIsNotMissingThere) {
  constexpr ProposalKey kThird{bucket_hash(5), 3};
  constexpr ProposalKey kFourth{bucket_hash(5), 4};
  const PendingKey past{.key = kThird, .past = true};
  Inspection job(2);
  for (int inquiry = 0; inquiry < 3; ++inquiry) {
    job.inspector.stalled(kThird);
    EXPECT_FALSE(job.inquire({{waits(kThird, "bucket 5")}, {waits(kA, "'a'"), past}}));
  }
  // Rank 1 has not begun the next round, because it waits for a proposal that rank 0 has not made.
  const std::vector<Pending> stuck = {{waits(kFourth, "bucket 5")}, {waits(kA, "'a'")}};
  job.inspector.stalled(kFourth);
  EXPECT_FALSE(job.inquire(stuck));
  const Finding finding = job.confirm(stuck);
  ASSERT_TRUE(finding);
  EXPECT_THAT(finding->keys, ElementsAre(kA, kFourth));
}

// No rank complained about the bucket, so no rank was asked whether it has completed it. The
// inspector must ask before it suspects.
TEST(StallInspector, AsksAboutABucketBeforeItMissesIt) {
  constexpr ProposalKey kBucket{bucket_hash(5), 3};
  const std::vector<Pending> stuck = {{waits(kBucket, "bucket 5")}, {waits(kA, "'a'")}};
  Inspection job(2);
  job.inspector.stalled(kA);
  EXPECT_FALSE(job.inquire(stuck));
  job.inspector.tick(job.now);
  const auto query = job.inspector.next_query(job.now);
  ASSERT_TRUE(query);
  EXPECT_THAT(query->keys, ElementsAre(kBucket));
}

TEST(StallInspector, FindsTwoRanksThatWaitForEachOtherInTwoInquiries) {
  Inspection job(3);
  const std::vector<Pending> pending = {
      {waits(kA, "'a': all_reduce")}, {waits(kB, "'b': all_reduce")}, {submitted(kA)}};
  job.inspector.stalled(kA);
  EXPECT_FALSE(job.inquire(pending));
  EXPECT_TRUE(job.inspector.is_busy());
  const Finding finding = job.confirm(pending);  // inquires a second time by itself
  ASSERT_TRUE(finding);
  EXPECT_THAT(finding->keys, ElementsAre(kA, kB));
  EXPECT_EQ(finding->error.code, ErrorCode::kMismatch);
  EXPECT_EQ(finding->error.what,
            "ranks wait for different tensors: rank 0 waits for 'a': all_reduce; rank 1 waits for "
            "'b': all_reduce; every thread that uses Kolo on these ranks is waiting");
  EXPECT_FALSE(job.inspector.is_busy());

  // Reports that cross the rejection repeat the finding, which is reported only once.
  job.inspector.stalled(kA);
  EXPECT_FALSE(job.inquire(pending));
  EXPECT_FALSE(job.inspector.is_busy());
}

TEST(StallInspector, ASecondInquiryThatComesEarlyConfirmsNothing) {
  Inspection job(2);
  const std::vector<Pending> stuck = {{waits(kA, "'a'")}, {waits(kB, "'b'")}};
  for (int i = 0; i < 5; ++i) {
    job.inspector.stalled(kA);
    EXPECT_FALSE(job.inquire(stuck));
  }
  EXPECT_TRUE(job.confirm(stuck));
}

// Rank 0 waits for a, which rank 1 lacks; rank 1 waits for b, which rank 2 lacks; rank 2 waits for
// c, which rank 0 lacks. No two ranks wait for each other.
TEST(StallInspector, FindsADeadlockThroughAChain) {
  Inspection job(3);
  const std::vector<Pending> pending = {{waits(kA, "'a'"), submitted(kB)},
                                        {waits(kB, "'b'"), submitted(kC)},
                                        {waits(kC, "'c'"), submitted(kA)}};
  job.inspector.stalled(kC);
  EXPECT_FALSE(job.inquire(pending));
  const Finding finding = job.confirm(pending);
  ASSERT_TRUE(finding);
  EXPECT_THAT(finding->keys, ElementsAre(kA, kB, kC));
  EXPECT_THAT(finding->error.what,
              AllOf(HasSubstr("rank 0 waits for 'a'"), HasSubstr("rank 1 waits for 'b'"),
                    HasSubstr("rank 2 waits for 'c'")));
}

TEST(StallInspector, RanksThatWaitForTheSameAreQuotedTogether) {
  Inspection job(3);
  const std::vector<Pending> pending = {
      {waits(kA, "'a'\nsecond line")}, {waits(kB, "'b'")}, {waits(kA, "'a'\nsecond line")}};
  job.inspector.stalled(kA);
  EXPECT_FALSE(job.inquire(pending));
  const Finding finding = job.confirm(pending);
  ASSERT_TRUE(finding);
  EXPECT_THAT(finding->error.what,
              AllOf(HasSubstr("ranks 0, 2 wait for 'a'"), HasSubstr("rank 1 waits for 'b'"),
                    Not(HasSubstr("second line"))));
}

TEST(StallInspector, ABusyRankBreaksEveryDeadlockHoweverOftenItIsAsked) {
  Inspection job(3);
  const std::vector<Pending> chain = {{waits(kA, "'a'"), submitted(kB)},
                                      {waits(kB, "'b'"), submitted(kC)},
                                      {submitted(kC), submitted(kA)}};  // rank 2 computes
  const std::vector<Pending> two_wait_for_one = {{waits(kA, "'a'")}, {waits(kA, "'a'")}, {}};
  for (int i = 0; i < 5; ++i) {
    for (const auto& pending : {chain, two_wait_for_one}) {
      job.inspector.stalled(kA);
      EXPECT_FALSE(job.inquire(pending));
      EXPECT_FALSE(job.inspector.is_busy());  // without a suspicion there is no second inquiry
    }
  }
}

// A thread of rank 1 may still submit a, so this is no error, but all ranks are told of the waits.
TEST(StallInspector, RanksThatWaitForEachOtherWhileAThreadRunsAreAStall) {
  Inspection job(3);
  const std::vector<Pending> pending = {{waits(kA, "'a'\nsecond line")},
                                        {{waits(kB, "'b'")}, kAnotherThreadRuns},
                                        {waits(kA, "'a'")}};
  std::vector<StallInspector::Warning> warnings;
  Finding finding;
  for (int i = 0; i <= 60; ++i, job.now += std::chrono::seconds(1)) {
    ASSERT_FALSE(finding) << "after " << i << " s";
    job.inspector.stalled(kA);
    finding = job.inquire(pending);
    if (const auto warning = job.inspector.take_warning()) {
      EXPECT_EQ(i, 1);
      warnings.push_back(*warning);
    }
  }
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_TRUE(warnings[0].is_for_all_ranks);
  const std::string stall =
      "ranks 0, 2 wait for 'a', which rank 1 has not submitted; rank 1 waits for 'b', which ranks "
      "0, 2 have not submitted";
  EXPECT_THAT(warnings[0].text, HasSubstr(stall));
  ASSERT_TRUE(finding);
  EXPECT_THAT(finding->keys, ElementsAre(kA, kB));
  EXPECT_EQ(finding->error.code, ErrorCode::kStall);
  EXPECT_EQ(finding->error.what, "no progress for 60 s: " + stall);
}

TEST(StallInspector, AThreadThatEndsTurnsAStallIntoADeadlock) {
  Inspection job(2);
  job.inspector.stalled(kA);
  EXPECT_FALSE(job.inquire({{waits(kA, "'a'")}, {{waits(kB, "'b'")}, kAnotherThreadRuns}}));
  const std::vector<Pending> stuck = {{waits(kA, "'a'")}, {waits(kB, "'b'")}};
  EXPECT_FALSE(job.confirm(stuck));
  EXPECT_TRUE(job.confirm(stuck));
}

TEST(StallInspector, ASetOfRanksIsStuckWhileAnotherRankRuns) {
  Inspection job(3);
  const std::vector<Pending> stuck = {{waits(kA, "'a'")}, {waits(kB, "'b'")}, {}};
  job.inspector.stalled(kA);
  EXPECT_FALSE(job.inquire(stuck));
  EXPECT_TRUE(job.confirm(stuck));
}

// Each rank has two threads. One of rank 0's waits can end, so rank 0 may proceed.
TEST(StallInspector, ARankIsStuckOnlyIfAllItsWaitsAre) {
  Inspection job(2);
  for (int i = 0; i < 3; ++i, job.now += kStallLimits.confirm_after) {
    job.inspector.stalled(kA);
    EXPECT_FALSE(
        job.inquire({{waits(kA, "'a'"), waits(kC, "'c'")}, {waits(kB, "'b'"), waits(kC, "'c'")}}));
  }
}

TEST(StallInspector, OneNameWithTwoSignaturesIsAnErrorWhateverThreadsDo) {
  constexpr ProposalKey kKnown{bucket_hash(3), 7};
  constexpr std::uint64_t kName = 42;
  const auto use = [](const ProposalKey& key, std::string text) {
    return PendingKey{.key = key, .text = std::move(text), .sequence = kName};
  };
  const std::vector<Pending> pending = {
      {use(kKnown, "'x': float32 [10]")}, {use(kA, "'x': float32 [20]")}, {}};
  Inspection job(3);
  job.inspector.stalled(kKnown);
  EXPECT_FALSE(job.inquire(pending));
  const Finding finding = job.confirm(pending);
  ASSERT_TRUE(finding);
  EXPECT_THAT(finding->keys, ElementsAre(kA, kKnown));
  EXPECT_EQ(finding->error.code, ErrorCode::kMismatch);
  EXPECT_EQ(finding->error.what,
            "ranks disagree: rank 0 submits 'x': float32 [10]; rank 1 submits 'x': float32 [20]");
}

// Rank 1 is one use ahead: it has completed the use that is still pending on rank 0.
TEST(StallInspector, ARankThatIsAheadDoesNotDisagree) {
  constexpr ProposalKey kKnown{bucket_hash(3), 7};
  Inspection job(2);
  for (int i = 0; i < 3; ++i, job.now += kStallLimits.confirm_after) {
    job.inspector.stalled(kKnown);
    EXPECT_FALSE(job.inquire(
        {{{.key = kKnown, .text = "'x': [10]", .sequence = 42}},
         {{.key = kKnown, .past = true}, {.key = kA, .text = "'x': [20]", .sequence = 42}}}));
  }
}

TEST(StallInspector, TellsOnceWhichRankHasBeenWaitedForForLong) {
  Inspection job(3);
  std::vector<std::string> notes;
  for (int i = 0; i <= 3 * StallInspector::kPeriodsBeforeNote; ++i) {
    job.inspector.stalled(kA);
    EXPECT_FALSE(job.inquire({{waits(kA, "'a'\nsecond line")}, {}, {submitted(kB)}}));
    if (const auto note = job.inspector.take_warning()) {
      EXPECT_EQ(i, StallInspector::kPeriodsBeforeNote);
      EXPECT_FALSE(note->is_for_all_ranks);
      notes.push_back(note->text);
    }
    job.now += kStallLimits.confirm_after;
  }
  EXPECT_THAT(notes,
              ElementsAre(HasSubstr("rank 0 waits for 'a', which ranks 1, 2 have not submitted")));
}

TEST(StallInspector, AStragglerIsAnErrorOnlyAfterTheStallLimit) {
  for (const bool is_limited : {true, false}) {
    Inspection job(2,
                   {.confirm_after = std::chrono::seconds(1),
                    .stall_after = is_limited ? Duration(std::chrono::hours(1)) : Duration::max()});
    Finding finding;
    for (int minute = 0; minute <= 60; ++minute, job.now += std::chrono::minutes(1)) {
      ASSERT_FALSE(finding);
      job.inspector.stalled(kA);
      finding = job.inquire({{waits(kA, "'a'")}, {}});
    }
    ASSERT_EQ(finding.has_value(), is_limited);
    if (finding) {
      EXPECT_EQ(finding->error.code, ErrorCode::kStall);
      EXPECT_THAT(finding->error.what, HasSubstr("rank 1 has not submitted"));
    }
  }
}

TEST(StallInspector, EverybodyHasSubmittedSoNothingIsStuck) {
  Inspection job(2);
  for (int i = 0; i < 3; ++i, job.now += std::chrono::minutes(1)) {
    job.inspector.stalled(kA);
    EXPECT_FALSE(job.inquire({{waits(kA, "'a'")}, {waits(kA, "'a'")}}));
  }
}

TEST(StallInspector, ADeadlockThatWasGoneInBetweenIsANewSuspicion) {
  Inspection job(2);
  const std::vector<Pending> stuck = {{waits(kA, "'a'")}, {waits(kB, "'b'")}};
  job.inspector.stalled(kA);
  EXPECT_FALSE(job.inquire(stuck));
  EXPECT_FALSE(job.confirm({{waits(kA, "'a'")}, {}}));
  job.inspector.stalled(kA);
  EXPECT_FALSE(job.inquire(stuck));
  EXPECT_TRUE(job.confirm(stuck));
}

TEST(StallInspector, ADeadlockOnOtherProposalsIsANewSuspicion) {
  Inspection job(2);
  job.inspector.stalled(kA);
  EXPECT_FALSE(job.inquire({{waits(kA, "'a'")}, {waits(kB, "'b'")}}));
  EXPECT_FALSE(job.confirm({{waits(kA, "'a'")}, {waits(kC, "'c'")}}));
  const Finding finding = job.confirm({{waits(kA, "'a'")}, {waits(kC, "'c'")}});
  ASSERT_TRUE(finding);
  EXPECT_THAT(finding->keys, ElementsAre(kA, kC));
}

TEST(StallInspector, ExplainsAConflictByRanksAndBothValuesAtOnce) {
  Inspection job(4);
  job.inspector.conflict(kA);
  const Finding finding = job.inquire({{submitted(kA, "'x': float32 [64]")},
                                       {submitted(kB), submitted(kA, "'x': float32 [20]")},
                                       {submitted(kA, "'x': float32 [64]")},
                                       {submitted(kA, "'x': float32 [64]")}});
  ASSERT_TRUE(finding);
  EXPECT_THAT(finding->keys, ElementsAre(kA));
  EXPECT_EQ(finding->error.code, ErrorCode::kMismatch);
  EXPECT_EQ(finding->error.to_string(),
            "agree of 'x': ranks disagree: ranks 0, 2, 3 submit 'x': float32 [64]; rank 1 submits "
            "'x': float32 [20]");
}

TEST(StallInspector, QuotesTheFirstLineThatDiffers) {
  const std::string same = "2 gradients\n'w': float32 [3]\n";
  struct Case {
    std::string other, tensor;
  };
  for (const Case& c : {Case{"'b': float32 [4]", "b"}, Case{"'c': float32 [4]", ""}, Case{}}) {
    Inspection job(2);
    job.inspector.conflict(kA);
    const Finding finding = job.inquire(
        {{submitted(kA, same + "'b': float32 [5]\n")}, {submitted(kA, same + c.other)}});
    ASSERT_TRUE(finding);
    EXPECT_EQ(finding->error.what,
              "ranks disagree: rank 0 submits 'b': float32 [5]; rank 1 submits " +
                  (c.other.empty() ? "nothing more" : c.other));
    EXPECT_EQ(finding->error.bucket, c.tensor);
  }
}

TEST(StallInspector, QuotesNoMoreThanAPersonReads) {
  constexpr int kRanks = 100;
  Inspection job(kRanks);
  job.inspector.conflict(kA);
  std::vector<Pending> pending;
  for (int rank = 0; rank < kRanks; ++rank) {
    pending.push_back({submitted(kA, "value " + std::to_string(rank))});
  }
  const Finding finding = job.inquire(pending);
  ASSERT_TRUE(finding);
  EXPECT_THAT(finding->error.what, testing::EndsWith("value 7; ..."));
}

TEST(StallInspector, AConflictIsAskedBeforeComplaintsWhichOneInquiryAnswers) {
  StallInspector inspector(1, kStallLimits);
  inspector.stalled(kA);
  inspector.stalled({bucket_hash(1), 4});
  inspector.conflict(kC);
  const auto first = inspector.next_query({});
  ASSERT_TRUE(first);
  EXPECT_EQ(first->key, kC);
  EXPECT_FALSE(inspector.next_query({}));  // only one inquiry at a time
  inspector.report(aggregated({{}}), TimePoint{});
  const auto second = inspector.next_query({});
  ASSERT_TRUE(second);
  EXPECT_THAT(second->keys, ElementsAre(ProposalKey{bucket_hash(1), 4}));
  inspector.report(aggregated({{}}), TimePoint{});
  EXPECT_FALSE(inspector.next_query({}));
}

TEST(StallInspector, NumbersItsInquiriesAndTakesOneReportToEach) {
  StallInspector inspector(2, kStallLimits);
  EXPECT_FALSE(inspector.is_busy());
  inspector.conflict(kA);
  inspector.conflict(kB);
  const auto first = inspector.next_query({});
  ASSERT_TRUE(first);
  EXPECT_TRUE(inspector.is_busy());
  EXPECT_TRUE(inspector.report(aggregated({{submitted(kA, "x")}, {submitted(kA, "y")}}), {}));
  EXPECT_FALSE(inspector.is_busy());
  const auto second = inspector.next_query({});
  ASSERT_TRUE(second);
  EXPECT_NE(second->least, first->least);
  const Finding finding =
      inspector.report(aggregated({{submitted(kB, "x")}, {submitted(kB, "y")}}), {});
  ASSERT_TRUE(finding);
  EXPECT_THAT(finding->error.what, StartsWith("ranks disagree: rank 0 submits x"));
}

// Ranks and proposals that a bounded report omits are unknown, and count as lacking nothing.
TEST(StallInspector, WhatAReportLeavesOutIsNotMissing) {
  Inspection job(3);
  const auto ask_for_a_minute = [&](const AggregatedReport& report) {
    Finding finding;
    for (int second = 0; second <= 60; ++second, job.now += std::chrono::seconds(1)) {
      job.inspector.stalled(kA);
      EXPECT_TRUE(job.inspector.next_query(job.now));
      finding = job.inspector.report(report, job.now);
    }
    return finding;
  };
  AggregatedReport two_of_three =
      aggregated({{waits(kA, "'a'"), waits(kB, "'b'")}, {waits(kA, "")}});
  two_of_three.unknown_from = kB;
  EXPECT_FALSE(ask_for_a_minute(two_of_three));
  const Finding finding = ask_for_a_minute(aggregated({{waits(kA, "'a'")}, {}}));
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->error.what,
            "no progress for 60 s: rank 0 waits for 'a', which rank 1 has not submitted (and 1 "
            "more in other states)");
}

}  // namespace
}  // namespace kolo
