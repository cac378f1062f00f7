// Runs the coordinators of all ranks in one thread. Some ranks freeze, fail or stop.

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <chrono>
#include <numeric>

#include "tests/comm/coordinator/coordinator_job.h"
#include "tests/support/sanitized.h"

namespace kolo {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;
using test::CoordinatorJob;
using test::kOptions;
using test::kTick;
using test::Wait;

struct Freeze {
  std::vector<int> nodes;
  int frozen;
  int waiting;
};

// A rank waits for a tensor that busy ranks do not submit. A rank that freezes must be named within
// 1.25 peer_timeout, for any age of the job and any mismatch period. In the tree of ten nodes, node
// 9 is a child of node 1, and the other nodes are children of node 0.
TEST(Liveness, ARankThatFreezesLateIsNoticedAsSoonAsOneThatFreezesEarly) {
  const auto expect_noticed = [](const Freeze& freeze, Duration lived,
                                 const CoordinatorOptions& options) {
    CoordinatorJob job(freeze.nodes, options);
    Wait wait;
    job.coordinator(freeze.waiting).propose("x", 1, "'x'", wait);
    job.play_without(-1, lived);
    ASSERT_FALSE(job.coordinator(freeze.waiting).failure());
    job.play_without(freeze.frozen, options.peer_timeout * 5 / 4);
    for (int rank = 0; rank < job.size(); ++rank) {
      if (rank == freeze.frozen) continue;
      const auto& failure = job.coordinator(rank).failure();
      ASSERT_TRUE(failure) << "rank " << rank << " waits for frozen " << freeze.frozen;
      EXPECT_EQ(failure->peer, freeze.frozen);
    }
  };
  const std::vector<int> ten(10, 1);
  const Freeze freezes[] = {{{2, 1}, 0, 2}, {{2, 1}, 1, 2}, {{2, 1}, 2, 1}, {ten, 0, 9},
                            {ten, 1, 9},    {ten, 1, 5},    {ten, 9, 5},    {{10}, 1, 9}};
  for (const Freeze& freeze : freezes) {
    for (const Duration lived : {Duration(0), Duration(seconds(33)), Duration(seconds(150))}) {
      if (test::kSanitized && lived > seconds(33)) continue;
      for (const seconds peer_timeout : {seconds(2), seconds(10)}) {
        for (const seconds mismatch_after : {seconds(1), seconds(60)}) {
          SCOPED_TRACE(fmt::format("{} of {} ranks, {} s of {} s, {} s", freeze.frozen,
                                   std::reduce(freeze.nodes.begin(), freeze.nodes.end()),
                                   lived / seconds(1), peer_timeout.count(),
                                   mismatch_after.count()));
          expect_noticed(freeze, lived,
                         {.mismatch_after = mismatch_after, .peer_timeout = peer_timeout});
        }
      }
    }
  }
}

struct Mute {
  std::vector<int> nodes;
  int rank;
  std::string table;
};

// A rank stops answering. Before it counts as lost, the ranks that wait for it log this, and the
// root logs which ranks wait for which tensors, unless the root itself does not answer. On a node
// of ten, rank 9 reports through rank 1.
TEST(Liveness, WhoWaitsForAMuteRankIsLoggedBeforeItIsLost) {
  const std::vector<Mute> cases = {
      {{3},
       2,
       "waiting: ranks 0-1; no answer: rank 2\nthe ranks that do not answer:\n  rank 2: for"},
      {{1, 2},
       1,
       "waiting: rank 0; no answer: rank 1\nthe ranks that do not answer:\n  rank 1: for"},
      {{10},
       9,
       "waiting: ranks 0-8; no answer: rank 9\nthe ranks that do not answer:\n  rank 9: for"},
      {{10},
       1,
       "no answer: rank 1\nthe ranks that do not answer:\n  rank 1: for 2 s\n  (nothing is known "
       "of 1 more)\n"},
      {{2}, 0, {}}};
  for (const Mute& mute : cases) {
    SCOPED_TRACE(mute.table);
    CoordinatorJob job(mute.nodes, {.peer_timeout = seconds(4), .warn_after = seconds(60)});
    std::vector<Wait> waits(static_cast<std::size_t>(job.size()));
    for (int rank = 0; rank < job.size(); ++rank) {
      if (rank == mute.rank) continue;
      Wait& wait = waits[static_cast<std::size_t>(rank)];
      wait.count = 1;
      job.coordinator(rank).propose("x", 1, "'x'", wait);
    }
    EXPECT_THAT(job.log_without(mute.rank, milliseconds(1900)), testing::IsEmpty());
    EXPECT_THAT(
        job.log_without(mute.rank, milliseconds(1900)),
        testing::AllOf(testing::HasSubstr(mute.table),
                       testing::ContainsRegex(fmt::format(
                           "rank {} has been silent for 2[.0-9]* s; after 4 s it is taken for lost",
                           mute.rank))));
    EXPECT_THAT(job.log_without(mute.rank, seconds(1)),
                testing::HasSubstr("has been silent for 4 s"));
    for (int rank = 0; rank < job.size(); ++rank) {
      if (rank == mute.rank) continue;
      ASSERT_TRUE(job.coordinator(rank).failure()) << rank;
      EXPECT_EQ(job.coordinator(rank).failure()->peer, mute.rank);
    }
  }
}

// A rank that answers again is asked again, and may be missed again.
TEST(Liveness, AMuteRankThatAnswersAgainIsHeard) {
  CoordinatorJob job({2}, {.peer_timeout = seconds(4), .warn_after = seconds(6)});
  Wait wait;
  wait.count = 1;
  job.coordinator(0).propose("x", 1, "'x'", wait);
  EXPECT_THAT(job.log_without(1, milliseconds(3500)), testing::HasSubstr("no answer: rank 1"));
  EXPECT_THAT(job.log_without(-1, seconds(10)),
              testing::HasSubstr("waiting: rank 0; missing: rank 1\n"));
  EXPECT_FALSE(job.coordinator(0).failure());
}

// Rank 2 sends a proposal before it receives the query, which it never answers.
TEST(Liveness, AnOlderFrameIsNoAnswerToAnInquiry) {
  CoordinatorJob job({3});
  Wait wait, none;
  job.coordinator(1).propose("x", 1, "'x'", wait);
  job.play_without(2, 2 * kOptions.mismatch_after);  // The query waits at rank 2.
  job.coordinator(2).propose("y", 1, "'y'", none);
  job.coordinator(2).poll();  // sends without receiving the query
  job.play_without(2, kTick);
  job.play_without(2, 2 * kOptions.peer_timeout);
  ASSERT_TRUE(job.coordinator(0).failure());
  EXPECT_EQ(job.coordinator(0).failure()->peer, 2);
}

// Both ranks are suspended for an hour and continued. That hour does not count against the peer.
TEST(Liveness, TimeInWhichTheJudgeWasStoppedDoesNotCount) {
  CoordinatorJob job({2});
  for (int i = 0; i < 20; ++i) {
    job.poll(0, {1});
    job.clock.advance(milliseconds(250));
  }
  job.poll(1);
  job.poll(0, {1});
  job.clock.advance(milliseconds(250));
  job.poll(0, {1});  // asks rank 1
  job.clock.advance(hours(1));
  job.poll(0, {1});
  EXPECT_FALSE(job.coordinator(0).failure());
  job.poll(1);
  job.clock.advance(milliseconds(250));
  job.poll(0, {1});
  EXPECT_FALSE(job.coordinator(0).failure());
}

// Rank 1 reports that rank 2 is lost and leaves. Rank 0 polls late and finds both at the same time.
TEST(Liveness, APeersAccountOfAFailureComesBeforeThePeersAbsence) {
  CoordinatorJob job({2, 1});
  job.coordinator(1).fail({.code = ErrorCode::kPeerLost, .rank = 1, .peer = 2, .what = "2 froze"});
  job.transport(1).shutdown(false);
  job.poll(0);
  ASSERT_TRUE(job.transport(0).failure());
  ASSERT_TRUE(job.coordinator(0).failure());
  EXPECT_EQ(job.coordinator(0).failure()->peer, 2);
}

// Rank 0 rejects a tensor, and its program ends because of that. Rank 1 finds both at the same
// time, and fails for the same reason.
TEST(Liveness, ADecisionThatCameBeforeAFailureCounts) {
  CoordinatorJob job({2});
  Wait wait;
  job.coordinator(0).propose("x", 1, "'x': [1]", wait);
  job.coordinator(1).propose("x", 2, "'x': [2]", wait);
  std::vector<Frame> decisions;
  testing::internal::CaptureStderr();
  while (decisions.empty()) {
    job.poll(1);
    job.poll(0);
    decisions = job.coordinator(0).take_decisions();
  }
  job.coordinator(0).leave({.code = ErrorCode::kPeerLost, .rank = 0, .what = "rank 0 left"});
  testing::internal::GetCapturedStderr();
  job.poll(1);
  EXPECT_TRUE(job.coordinator(1).failure());
  decisions = job.coordinator(1).take_decisions();
  ASSERT_EQ(decisions.size(), 1U);
  EXPECT_EQ(decisions[0].error.code, ErrorCode::kMismatch);
}

TEST(Liveness, LimitsOfAnyLengthDoNotOverflow) {
  CoordinatorOptions options{.mismatch_after = saturated(milliseconds::max()),
                             .peer_timeout = saturated(milliseconds(10'000'000'000'000)),
                             .stall_after = Duration::max()};
  CoordinatorJob job({2}, options);
  Wait wait;
  job.coordinator(0).propose("x", 1, "'x'", wait);
  for (int i = 0; i < 1000; ++i) {
    job.poll(0, {1});
    job.clock.advance(seconds(1));
  }
  EXPECT_FALSE(job.coordinator(0).failure());
}

// A rank that only answers pings for a long time, as during allocation, is not lost. It misses no
// frame, and considers no other rank lost.
TEST(Coordinator, ARankThatOnlyAnswersPingsLives) {
  for (const int busy : {0, 1, 2}) {
    SCOPED_TRACE(busy);
    CoordinatorJob job({2, 1});
    Wait wait;
    wait.count = 1;
    for (int rank = 0; rank < job.size(); ++rank) {
      job.threads(rank) = 1;
      job.coordinator(rank).propose("x", 1, "'x'", wait);
    }
    job.play(5 * kOptions.peer_timeout, [&](int rank) {
      if (rank != busy) return job.poll(rank, {busy});
      job.transport(rank).poll();
      job.coordinator(rank).answer_pings();
    });
    EXPECT_TRUE(job.coordinator(busy).has_postponed());
    job.poll_all();
    EXPECT_FALSE(job.coordinator(busy).has_postponed());
    for (int rank = 0; rank < job.size(); ++rank) {
      const auto& failure = job.coordinator(rank).failure();
      EXPECT_FALSE(failure) << failure->to_string();
      EXPECT_EQ(job.coordinator(rank).take_decisions().size(), 1U) << rank;
    }
  }
}

}  // namespace
}  // namespace kolo
