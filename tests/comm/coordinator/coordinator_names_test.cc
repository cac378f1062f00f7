// Programs may use any number of names: coordinators forget a name that all ranks have finished.

#include <gmock/gmock.h>

#include "tests/comm/coordinator/coordinator_job.h"

namespace kolo::test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class CoordinatorNames : public ::testing::TestWithParam<std::vector<int>> {
 protected:
  /// Makes all ranks propose the next use of the name; returns the proposal.
  ProposalKey propose(const std::string& name) {
    ProposalKey key;
    for (int rank = 0; rank < job_.size(); ++rank) {
      key = job_.coordinator(rank).propose(name, 1, "'" + name + "'", wait_);
    }
    return key;
  }

  /// Makes all ranks vote with their numbers of uses; returns whether the name is forgotten.
  bool vote(const std::string& name, const std::vector<std::optional<std::uint64_t>>& uses) {
    for (int rank = 0; rank < job_.size(); ++rank) {
      job_.coordinator(rank).vote_on_end("vote", name, uses[static_cast<std::size_t>(rank)],
                                         "a vote", wait_);
    }
    job_.poll_all();
    bool goes = false;
    for (const Frame& decision : take_decisions(FrameKind::kAccept)) {
      goes = Coordinator::ends(decision);
    }
    return goes;
  }

  /// Takes each rank's decisions and checks that the last is of this kind. Returns rank 0's.
  std::vector<Frame> take_decisions(FrameKind kind) {
    std::vector<Frame> first;
    for (int rank = job_.size() - 1; rank >= 0; --rank) {
      first = job_.coordinator(rank).take_decisions();
      EXPECT_THAT(first, SizeIs(1)) << "rank " << rank;
      if (!first.empty()) {
        EXPECT_EQ(first.back().kind, kind) << "rank " << rank;
      }
    }
    return first;
  }

  std::vector<std::optional<std::uint64_t>> all(std::uint64_t uses) const {
    return std::vector<std::optional<std::uint64_t>>(static_cast<std::size_t>(job_.size()), uses);
  }

  Wait wait_;
  CoordinatorJob job_{GetParam()};
};

TEST_P(CoordinatorNames, BeginAnewWhenAllHaveDone) {
  for (int life = 0; life < 3; ++life) {
    const ProposalKey key = propose("x");
    EXPECT_EQ(key.round, 0u) << "life " << life;
    job_.poll_all();
    take_decisions(FrameKind::kAccept);
    EXPECT_TRUE(vote("x", all(7)));
    for (int rank = 0; rank < job_.size(); ++rank) {
      EXPECT_FALSE(job_.coordinator(rank).is_decided(key)) << "rank " << rank;
    }
  }
}

TEST_P(CoordinatorNames, StayWhereARankHasNotDone) {
  propose("x");
  job_.poll_all();
  take_decisions(FrameKind::kAccept);
  for (const std::optional<std::uint64_t> last :
       {std::optional<std::uint64_t>(8), std::optional<std::uint64_t>()}) {
    auto uses = all(7);
    uses.back() = last;
    EXPECT_EQ(vote("x", uses), job_.size() == 1 && last);
    if (job_.size() > 1) {
      EXPECT_TRUE(job_.coordinator(0).is_decided({name_hash("x"), 0}));
    }
  }
}

// A late rank must fail at the use that the others gave up, not at a later one.
TEST_P(CoordinatorNames, AreCountedOnWhileAUseThatWasGivenUpIsToCome) {
  if (job_.size() == 1) GTEST_SKIP() << "nobody can be late";
  const ProposalKey first = propose("x");
  job_.poll_all();
  take_decisions(FrameKind::kAccept);
  const ProposalKey given_up{first.hash, 1};
  const int late = job_.size() - 1;
  for (int rank = 0; rank < late; ++rank) {
    job_.coordinator(rank).propose("x", 1, "'x'", wait_);
  }
  wait_.count = 1;  // a thread of each rank waits forever
  for (int i = 0; i < 10000 && !job_.coordinator(0).is_decided(given_up); ++i) {
    job_.clock.advance(kTick);
    job_.poll_all(1);
  }
  job_.poll_all();
  take_decisions(FrameKind::kReject);
  EXPECT_TRUE(vote("x", all(1)));
  EXPECT_TRUE(job_.coordinator(0).is_decided(given_up));
  EXPECT_EQ(job_.coordinator(late).propose("x", 1, "'x'", wait_), given_up);
  const auto decisions = job_.coordinator(late).take_decisions();
  ASSERT_THAT(decisions, SizeIs(1));
  EXPECT_EQ(decisions[0].kind, FrameKind::kReject);
  EXPECT_EQ(propose("x").round, 2u);
  job_.poll_all();
  take_decisions(FrameKind::kAccept);
}

// A forgotten name is new: its former uses have no effect.
TEST_P(CoordinatorNames, BeginAnewForInvitationsAndErrors) {
  if (job_.size() == 1) GTEST_SKIP() << "a rank alone neither joins nor differs";
  const int joined = job_.size() - 1;
  job_.coordinator(joined).join(wait_);
  job_.poll_all();
  for (int life = 0; life < 2; ++life) {
    SCOPED_TRACE(::testing::Message() << "life " << life);
    for (int rank = 0; rank < joined; ++rank) {
      job_.coordinator(rank).propose("x", 1, "'x'", wait_);
    }
    job_.poll_all();
    const auto invitations = job_.coordinator(joined).take_invitations();
    ASSERT_THAT(invitations, SizeIs(1));
    job_.coordinator(joined).propose("x", 1, "'x'", wait_);
    job_.poll_all();
    take_decisions(FrameKind::kAccept);
    // The next use is declined, so all ranks reject it.
    for (int rank = 0; rank < joined; ++rank) {
      job_.coordinator(rank).propose("x", 2, "'x'", wait_);
    }
    job_.poll_all();
    ASSERT_THAT(job_.coordinator(joined).take_invitations(), SizeIs(1));
    job_.coordinator(joined).decline({name_hash("x"), 1},
                                     {.code = ErrorCode::kMismatch, .what = "declined"});
    job_.poll_all();
    EXPECT_THAT(take_decisions(FrameKind::kReject)[0].error.what, HasSubstr("declined"));
    EXPECT_TRUE(vote("x", all(1)));
    EXPECT_THAT(job_.coordinator(joined).take_invitations(), IsEmpty());
  }
}

// A proposal that crosses its rejection must not count for the next use of the name.
TEST_P(CoordinatorNames, BeginAnewAfterAProposalThatCrossedItsRejection) {
  if (job_.size() == 1) GTEST_SKIP() << "nobody can be late";
  const int late = 1, joined = job_.size() - 1;
  const ProposalKey key{name_hash("x"), 0};
  const auto propose_at = [&](int rank) {
    EXPECT_EQ(job_.coordinator(rank).propose("x", 1, "'x'", wait_), key);
  };
  job_.coordinator(joined).join(wait_);
  job_.poll_all();
  for (int rank = 0; rank < joined; ++rank) {
    if (rank != late) propose_at(rank);
  }
  job_.poll_all();
  ASSERT_THAT(job_.coordinator(joined).take_invitations(), SizeIs(1));
  job_.coordinator(joined).decline(key, {.code = ErrorCode::kMismatch, .what = "declined"});
  for (int i = 0; i < 20 * job_.size(); ++i) {
    if (i % job_.size() != late) job_.poll(i % job_.size());
  }
  ASSERT_TRUE(job_.coordinator(0).is_decided(key));
  propose_at(late);
  job_.poll_all();
  take_decisions(FrameKind::kReject);
  ASSERT_TRUE(vote("x", all(1)));
  for (int rank = 0; rank < job_.size(); ++rank) {
    if (rank != late) propose_at(rank);
  }
  job_.poll_all();
  EXPECT_FALSE(job_.coordinator(0).is_decided(key));
  propose_at(late);
  job_.poll_all();
  take_decisions(FrameKind::kAccept);
}

INSTANTIATE_TEST_SUITE_P(Shapes, CoordinatorNames,
                         ::testing::Values(std::vector{1}, std::vector{3}, std::vector{2, 1, 2},
                                           std::vector{1, 1, 1, 1, 1, 1}));

}  // namespace
}  // namespace kolo::test
