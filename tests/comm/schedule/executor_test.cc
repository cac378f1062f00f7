#include "comm/schedule/executor.h"

#include <gmock/gmock.h>

#include "comm/base/error.h"
#include "tests/comm/schedule/executor_rank.h"

namespace kolo {
namespace {

using test::Job;
using test::make_ranks;
using test::Rank;
using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// With 5 MiB, each rank's kernel has several parts.
TEST(Executor, PollsBetweenThePartsOfALongKernel) {
  constexpr TransportLimits kLimits{.arena_bytes = std::size_t{32} << 20};
  InProcessHub hub(ProcessGrid::with_node_sizes({2}), kLimits);
  const auto ranks = make_ranks(hub);
  for (const auto& rank : ranks) {
    rank->add({.count = std::size_t{5} << 18}, hub.grid(), {.algorithm = "direct"});
    rank->start(0, 0);
  }
  int polls = 0;
  for (std::size_t finished = 0; finished < ranks.size(); ++polls) {
    ASSERT_LT(polls, 100);
    for (const auto& rank : ranks) {
      rank->poll();
      finished += rank->executor().take_finished().size();
    }
  }
  EXPECT_GE(polls, 3);
  for (const auto& rank : ranks) EXPECT_EQ(rank->wrong(0, 0), "");
}

// The other ranks continue with other buckets, and the abandoned bucket's memory is not reused.
TEST(Executor, AbandonForgetsOneBucketForGood) {
  for (const Job& job : {Job{{3}, "direct"}, Job{{3}, "flat"}, Job{{1, 1, 1}, "ring"}}) {
    for (int steps = 0; steps < 6; ++steps) {
      SCOPED_TRACE(text(job) + " after " + std::to_string(steps) + " steps");
      InProcessHub hub(ProcessGrid::with_node_sizes(job.nodes));
      const auto ranks = make_ranks(hub);
      for (const auto& rank : ranks) {
        for (BucketId bucket = 0; bucket < 2; ++bucket) {
          rank->add({.count = 200, .placement = Placement::kUser}, hub.grid(),
                    {.algorithm = job.algorithm, .chunk_bytes = 256});
        }
      }
      for (std::size_t r = 0; r < 2; ++r) ranks[r]->start(0, 0);  // rank 2 never starts it
      for (int step = 0; step < steps; ++step) {
        for (const auto& rank : ranks) rank->poll();
      }
      for (std::size_t r = 0; r < 2; ++r) {
        ranks[r]->executor().abandon(0);
        EXPECT_FALSE(ranks[r]->executor().busy());
        EXPECT_THROW(ranks[r]->executor().start(0, 1), KoloError);
        EXPECT_THROW(ranks[r]->executor().abandon(0), KoloError);
        // Messages in flight may still access the bucket's memory, so `remove` throws. Inside a
        // node, the caller must know that peers no longer access it.
        if (job.nodes.size() > 1) {
          EXPECT_THROW(ranks[r]->executor().remove(0), KoloError);
        } else {
          EXPECT_NO_THROW(ranks[r]->executor().remove(0));
        }
      }
      std::size_t finished = 0;
      for (const auto& rank : ranks) rank->start(1, 0);
      for (int polls = 0; finished < ranks.size(); ++polls) {
        ASSERT_LT(polls, 1000);
        for (const auto& rank : ranks) {
          rank->poll();
          for (BucketId bucket : rank->executor().take_finished()) {
            EXPECT_EQ(bucket, 1u);
            EXPECT_EQ(rank->wrong(1, 0), "");
            ++finished;
          }
        }
      }
      // Messages that other ranks have sent to rank 2 do not count as strays.
      for (const auto& rank : ranks) {
        rank->executor().cancel();
        rank->transport().shutdown(true);
        EXPECT_FALSE(rank->transport().failure());
      }
    }
  }
}

TEST(Executor, SaysWhatAndForWhomItWaits) {
  InProcessHub hub(ProcessGrid::with_node_sizes({1, 1}));
  Rank rank(hub, 0);
  EXPECT_EQ(rank.executor().describe_wait(), "nothing");
  rank.add({.count = 100}, hub.grid(), {.algorithm = "ring"});
  rank.start(0, 7);
  for (int i = 0; i < 10; ++i) {
    rank.poll();
  }
  EXPECT_TRUE(rank.executor().busy());
  EXPECT_THAT(rank.executor().describe_wait(), AllOf(HasSubstr("bucket 'bucket 0' iteration 7:"),
                                                     HasSubstr("recv"), HasSubstr("from rank 1")));
  std::vector<int> peers;
  rank.executor().append_awaited_peers(peers);
  EXPECT_THAT(peers, AllOf(Contains(1), Each(1)));
}

// After the transport is shut down, no memory of a run is accessed, at whatever step the run ended.
TEST(Executor, CancelForgetsWhatIsInFlight) {
  for (const Job& job : {Job{{2, 1}, "hierarchical:direct,direct"}, Job{{1, 1, 1}, "ring"}}) {
    for (int steps = 0; steps < 12; ++steps) {
      SCOPED_TRACE(text(job) + " after " + std::to_string(steps) + " steps");
      InProcessHub hub(ProcessGrid::with_node_sizes(job.nodes));
      auto ranks = make_ranks(hub);
      for (const auto& rank : ranks) {
        for (BucketId bucket = 0; bucket < 3; ++bucket) {
          rank->add({.count = 200}, hub.grid(), {.algorithm = job.algorithm, .chunk_bytes = 256});
          rank->start(bucket, 0);
        }
      }
      for (int step = 0; step < steps; ++step) {
        for (const auto& rank : ranks) rank->poll();
      }
      Rank& cut = *ranks[0];
      cut.transport().shutdown(false);
      cut.executor().cancel();
      EXPECT_FALSE(cut.executor().busy());
      EXPECT_THAT(cut.executor().take_finished(), IsEmpty());
      EXPECT_FALSE(cut.executor().poll());
      for (BucketId bucket = 0; bucket < 3; ++bucket) cut.executor().remove(bucket);
      ranks.erase(ranks.begin());
      for (const auto& rank : ranks) {
        for (int step = 0; step < 200; ++step) {
          rank->poll();
        }
        rank->transport().shutdown(false);
        rank->executor().cancel();
      }
    }
  }
}

// Iterations in tags wrap around. A bucket's first iteration determines which messages are dropped.
TEST(Executor, WhatPeersSentOfABucketNotYetStartedIsGivenUpFromItsFirstIterationOn) {
  using Counts = std::initializer_list<std::uint64_t>;
  for (const std::uint64_t first : Counts{0, 1, 511, 512, 600, 1023, 1024, 1600}) {
    for (const std::uint64_t done : Counts{0, 1, 3}) {
      SCOPED_TRACE(std::to_string(done) + " iterations from " + std::to_string(first) + " on");
      InProcessHub hub(ProcessGrid::with_node_sizes({1, 1}));
      const auto ranks = make_ranks(hub);
      const auto poll_all = [&] {
        for (const auto& rank : ranks) rank->poll();
      };
      for (const auto& rank : ranks) {
        rank->add({.count = 200}, hub.grid(), {.algorithm = "direct"}, first);
      }
      for (std::uint64_t iteration = first; iteration < first + done; ++iteration) {
        for (const auto& rank : ranks) rank->start(0, iteration);
        for (int polls = 0; polls < 10; ++polls) poll_all();
      }
      ranks[0]->start(0, first + done);  // rank 1 does not start it before both close
      for (int polls = 0; polls < 10; ++polls) poll_all();
      EXPECT_TRUE(ranks[0]->executor().busy());
      EXPECT_FALSE(ranks[1]->executor().busy());
      for (const auto& rank : ranks) rank->executor().cancel();
      for (const auto& rank : ranks) {
        rank->transport().shutdown(true);
        EXPECT_FALSE(rank->transport().failure());
      }
    }
  }
}

TEST(Executor, ABucketIsNeitherStartedTwiceNorRemovedWhileItRuns) {
  InProcessHub hub(ProcessGrid::with_node_sizes({1, 1}));
  Rank rank(hub, 0);
  rank.add({.count = 100}, hub.grid(), {.algorithm = "ring"});
  rank.start(0, 0);
  EXPECT_THROW(rank.executor().start(0, 1), KoloError);
  EXPECT_THROW(rank.executor().remove(0), KoloError);
  EXPECT_TRUE(rank.executor().busy());
}

TEST(Executor, AnEmptyBucketFinishesAtOnce) {
  InProcessHub hub(ProcessGrid::with_node_sizes({1, 1}));
  Rank rank(hub, 0);
  rank.add({.count = 0}, hub.grid(), {.algorithm = "ring"});
  for (std::uint64_t iteration = 0; iteration < 3; ++iteration) {
    rank.start(0, iteration);
    EXPECT_TRUE(rank.executor().poll());
    EXPECT_THAT(rank.executor().take_finished(), ElementsAre(0u));
  }
}

TEST(Executor, RefusesABucketThatTheArenaCannotHold) {
  InProcessHub hub(ProcessGrid::with_node_sizes({1}));
  Rank rank(hub, 0);
  try {
    rank.add({.count = kInProcessLimits.arena_bytes}, hub.grid(), {});
    ADD_FAILURE();
  } catch (const KoloError& e) {
    EXPECT_EQ(e.error().code, ErrorCode::kResources);
  }
}

}  // namespace
}  // namespace kolo
