// Tests how coordinators inform a rank that has run out of data.

#include <gmock/gmock.h>

#include "tests/comm/coordinator/coordinator_job.h"

namespace kolo::test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct WaitWithTerms final : Waitable {
  int waiters() const override { return 0; }
  std::vector<std::byte> terms() const override { return {std::byte{42}}; }
};

std::vector<ProposalKey> invited(Coordinator& coordinator) {
  std::vector<ProposalKey> keys;
  for (const Invitation& each : coordinator.take_invitations()) keys.push_back(each.key);
  return keys;
}

constexpr BucketId kBucket = 3, kOther = 4;
ProposalKey use_of(BucketId bucket, std::uint64_t iteration) {
  return {bucket_hash(bucket), iteration};
}

TEST(CoordinatorJoin, InvitesToWhatHasEndedIsPendingAndBegins) {
  CoordinatorJob job({2, 1});
  const Wait wait;
  Coordinator& joined = job.coordinator(2);
  Coordinator& other = job.coordinator(1);
  const RequestInfo request{.text = "'x'", .waited = wait};
  for (std::uint64_t iteration = 0; iteration < 2; ++iteration) {
    other.begin(kBucket, iteration, request);
    other.end(kBucket);
  }
  other.begin(kOther, 7, request);
  job.poll_all();
  joined.join(wait);
  job.poll_all();
  EXPECT_THAT(invited(joined), ElementsAre(use_of(kBucket, 1), use_of(kOther, 7)));
  other.end(kOther);
  other.begin(kOther, 8, request);
  job.poll_all();
  EXPECT_THAT(invited(joined), ElementsAre(use_of(kOther, 8)));
}

TEST(CoordinatorJoin, InvitesToProposalsOnTheirTermsButNotToVotes) {
  CoordinatorJob job({2});
  const Wait wait;
  const WaitWithTerms terms;
  job.coordinator(1).join(wait);
  const ProposalKey early = job.coordinator(0).propose("early", 1, "'early': line\nanother", terms);
  job.poll_all();
  const ProposalKey late = job.coordinator(0).propose("late", 1, "'late'", wait);
  job.coordinator(0).vote("vote", 1, "a vote", wait);
  job.poll_all();
  const auto invitations = job.coordinator(1).take_invitations();
  ASSERT_EQ(invitations.size(), 2u);
  EXPECT_EQ(invitations[0].key, early);
  EXPECT_EQ(invitations[0].text, "'early': line");
  EXPECT_THAT(invitations[0].terms, ElementsAre(std::byte{42}));
  EXPECT_EQ(invitations[1].key, late);
  EXPECT_THAT(invitations[1].terms, IsEmpty());
}

// All ranks reject a declined proposal, and number the next use of the name equally.
TEST(CoordinatorJoin, WhatIsDeclinedIsRejectedEverywhere) {
  for (const int joined : {0, 3}) {
    CoordinatorJob job({2, 2});
    const Wait wait;
    job.coordinator(joined).join(wait);
    job.poll_all();
    const int other = joined == 0 ? 1 : 0;
    const ProposalKey key = job.coordinator(other).propose("x", 1, "'x'", wait);
    job.poll_all();
    job.coordinator(joined).decline(key, {.code = ErrorCode::kMismatch, .what = "no data"});
    job.poll_all();
    for (int rank = 0; rank < job.size(); ++rank) {
      const auto decisions = job.coordinator(rank).take_decisions();
      ASSERT_EQ(decisions.size(), 1u);
      EXPECT_EQ(decisions[0].kind, FrameKind::kReject);
      EXPECT_EQ(decisions[0].error.what, "no data");
    }
    // Late ranks get the rejection of the failed use; the joined rank does not.
    std::vector<ProposalKey> keys(4);
    for (int rank = 0; rank < job.size(); ++rank) {
      auto& coordinator = job.coordinator(rank);
      if (rank != joined && rank != other) coordinator.propose("x", 1, "'x'", wait);
      EXPECT_EQ(coordinator.take_decisions().size(), rank != joined && rank != other ? 1u : 0u);
      keys[static_cast<std::size_t>(rank)] = coordinator.propose("x", 1, "'x'", wait);
    }
    EXPECT_THAT(keys, ::testing::Each(ProposalKey{key.hash, key.round + 1}));
    job.poll_all();
    for (int rank = 0; rank < job.size(); ++rank) {
      const auto decisions = job.coordinator(rank).take_decisions();
      ASSERT_EQ(decisions.size(), 1u);
      EXPECT_EQ(decisions[0].kind, FrameKind::kAccept);
    }
  }
}

TEST(CoordinatorJoin, EndsWithTheLastRank) {
  CoordinatorJob job({2, 1});
  const Wait wait;
  for (const int rank : {1, 0, 2}) {
    job.coordinator(rank).join(wait);
    job.poll_all();
  }
  for (int rank = 0; rank < job.size(); ++rank) {
    const auto decisions = job.coordinator(rank).take_decisions();
    ASSERT_EQ(decisions.size(), 1u);
    EXPECT_EQ(Coordinator::last_to_join(decisions[0]), 2);
    EXPECT_FALSE(job.coordinator(rank).waiting());
  }
  job.coordinator(0).begin(kBucket, 0, {.text = "'x'", .waited = wait});
  job.poll_all();
  EXPECT_THAT(invited(job.coordinator(1)), IsEmpty());
}

}  // namespace
}  // namespace kolo::test
