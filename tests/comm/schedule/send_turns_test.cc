// Buckets of different urgency, in one thread.

#include "comm/schedule/send_turns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/comm/schedule/executor_rank.h"
#include "tests/support/sanitized.h"

namespace kolo {
namespace {

using test::Job;
using test::make_ranks;
using test::Rank;
using testing::HasSubstr;

using Ranks = std::vector<std::unique_ptr<Rank>>;

TEST(SendTurns, HoldLessUrgentSendsWhileOthersHaveSomeLeft) {
  SendTurns turns;
  SendTurns::Sender urgent(1, 2), other(5, 2);
  turns.begin(urgent);
  turns.begin(other);
  turns.begin_round();
  EXPECT_FALSE(turns.hold(urgent, 0));
  turns.sent(urgent);
  turns.pass(urgent);
  EXPECT_TRUE(turns.hold(other, 7));
  EXPECT_TRUE(turns.hold(other, 8));
  EXPECT_EQ(turns.release(other), std::nullopt);
  turns.pass(other);

  // Nothing is under way: one goes out, and the next one waits for it.
  turns.completed(urgent);
  turns.begin_round();
  turns.pass(urgent);
  EXPECT_EQ(turns.release(other), StepId{7});
  turns.sent(other);
  EXPECT_EQ(turns.release(other), std::nullopt);
  turns.pass(other);

  // The urgent one waits for nobody; after its last send it holds nobody.
  turns.begin_round();
  EXPECT_FALSE(turns.hold(urgent, 1));
  turns.sent(urgent);
  turns.pass(urgent);
  EXPECT_EQ(turns.release(other), StepId{8});
}

TEST(SendTurns, AreForNobodyAmongEquals) {
  SendTurns turns;
  SendTurns::Sender first(3, 9), second(3, 9);
  turns.begin(first);
  turns.begin(second);
  turns.begin_round();
  EXPECT_FALSE(turns.hold(first, 0));
  turns.sent(first);
  turns.pass(first);
  EXPECT_FALSE(turns.hold(second, 0));
}

TEST(SendTurns, ForgetWhatWillNotComplete) {
  SendTurns turns;
  SendTurns::Sender urgent(1, 2), other(2, 2);
  turns.begin(urgent);
  turns.begin(other);
  turns.begin_round();
  turns.sent(other);
  turns.pass(urgent);
  EXPECT_TRUE(turns.hold(other, 0));
  turns.forget(other);
  EXPECT_EQ(turns.release(other), StepId{0});
}

constexpr std::size_t kChunk = 256;  // Bytes.

CompileOptions without_eager(const std::string& algorithm) {
  return {.algorithm = algorithm,
          .chunk_bytes = kChunk,
          .eager_bytes = 0,
          .network_window = 4 * kChunk};
}

// A large bucket is under way on all ranks when a small, more urgent one begins.
TEST(Executor, SendsOfAnUrgentBucketOvertakeBetweenChunks) {
  constexpr BucketId kLarge = 0, kUrgent = 1;
  InProcessHub hub(ProcessGrid::with_node_sizes({1, 1, 1}));
  const Ranks ranks = make_ranks(hub);
  for (const auto& rank : ranks) {
    rank->add({.count = 20'000}, hub.grid(), without_eager("ring"), 0, 9);
    rank->add({.count = 2'000}, hub.grid(), without_eager("ring"), 0, 4);
    rank->start(kLarge, 0);
  }
  const auto poll = [](Rank& rank) {
    rank.transport().poll();
    rank.executor().poll();
  };
  for (int i = 0; i < 10; ++i) {
    for (const auto& rank : ranks) poll(*rank);
  }
  const auto total = [&](int rank, std::size_t count) {
    const Schedule schedule =
        compile_all_reduce(rank, {.count = count}, hub.grid(), without_eager("ring"));
    return traffic(schedule, [](int) { return true; }).bytes;
  };
  const auto sent = [](Rank& rank, BucketId bucket) {
    return rank.executor().network_bytes(bucket);
  };
  for (const auto& rank : ranks) {
    EXPECT_GT(sent(*rank, kLarge), 0u);
    rank->start(kUrgent, 0);
  }
  std::size_t filled = 0;
  for (std::size_t unfinished = ranks.size(), polls = 0; unfinished > 0; ++polls) {
    ASSERT_LT(polls, 10'000u);
    for (std::size_t i = 0; i < 2 * ranks.size(); ++i) {
      Rank* const rank = ranks[i / 2].get();  // The second time often nothing has come.
      const std::size_t urgent = sent(*rank, kUrgent), large = sent(*rank, kLarge);
      poll(*rank);
      const int number = rank->transport().rank();
      const bool is_left = sent(*rank, kUrgent) < total(number, 2'000);
      if (is_left && sent(*rank, kUrgent) > urgent) {
        EXPECT_EQ(sent(*rank, kLarge), large) << "they went out together";
      }
      if (is_left) {
        EXPECT_LE(sent(*rank, kLarge) - large, kChunk) << "more than one filled a gap";
        filled += sent(*rank, kLarge) - large;
      }
      for (BucketId bucket : rank->executor().take_finished()) {
        ASSERT_EQ(bucket, kUrgent);
        EXPECT_LT(sent(*rank, kLarge), total(number, 20'000) / 2);
        EXPECT_EQ(rank->wrong(kUrgent, 0), "");
        --unfinished;
      }
    }
  }
  EXPECT_GT(filled, 0u) << "gaps between urgent sends are used";
  std::size_t finished = 0;
  for (int i = 0; finished < ranks.size(); ++i) {
    ASSERT_LT(i, 10'000);
    for (const auto& rank : ranks) {
      poll(*rank);
      finished += rank->executor().take_finished().size();
    }
  }
  for (const auto& rank : ranks) EXPECT_EQ(rank->wrong(kLarge, 0), "");
}

// An eager bucket may wait for a peer that has not even begun it; nobody waits for that.
TEST(Executor, EagerBucketsHoldNobodyBack) {
  InProcessHub hub(ProcessGrid::with_node_sizes({1, 1}));
  hub.complete_sends_on_receipt();
  const Ranks ranks = make_ranks(hub);
  CompileOptions eager = without_eager("ring");
  eager.eager_bytes = 1U << 20;
  for (const auto& rank : ranks) {
    rank->add({.count = 2'000}, hub.grid(), eager, 0, 1);
    rank->add({.count = 2'000}, hub.grid(), without_eager("ring"), 0, 2);
  }
  ranks[0]->start(0, 0);
  for (const auto& rank : ranks) rank->start(1, 0);
  std::size_t finished = 0;
  for (int i = 0; finished < ranks.size(); ++i) {
    ASSERT_LT(i, 1'000);
    for (const auto& rank : ranks) {
      rank->transport().poll();
      rank->executor().poll();
      for (BucketId bucket : rank->executor().take_finished()) finished += bucket;
    }
  }
}

TEST(Executor, SaysWhatTheMostUrgentBucketWaitsFor) {
  InProcessHub hub(ProcessGrid::with_node_sizes({1, 1}));
  Rank rank(hub, 0);
  for (const std::uint32_t urgency : {1U, 2U}) {
    rank.add({.count = 2'000}, hub.grid(), without_eager("ring"), 0, urgency);
  }
  const auto poll = [&] {
    for (int i = 0; i < 3; ++i) rank.executor().poll();
  };
  rank.start(1, 0);
  poll();
  EXPECT_THAT(rank.executor().describe_wait(), HasSubstr("'bucket 1'"));
  rank.start(0, 0);
  poll();
  EXPECT_THAT(rank.executor().describe_wait(), HasSubstr("'bucket 0'"));
}

/// The results of buckets that start in any order on each rank, with urgencies or without, where a
/// send completes only when it is received.
std::vector<std::vector<std::byte>> results(const Job& job, std::uint64_t seed, bool has_urgency) {
  constexpr std::size_t kBuckets = 6;
  constexpr std::uint64_t kIterations = 2;
  std::mt19937_64 random(seed);
  InProcessHub hub(ProcessGrid::with_node_sizes(job.nodes));
  hub.complete_sends_on_receipt();
  const Ranks ranks = make_ranks(hub);
  std::vector<std::uint32_t> urgency(kBuckets);
  std::iota(urgency.begin(), urgency.end(), has_urgency ? 1U : 0U);
  std::ranges::shuffle(urgency, random);
  if (!has_urgency) std::ranges::fill(urgency, 0U);
  std::vector<std::pair<std::size_t, BucketId>> starts;  // (rank, bucket), not started yet
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    for (BucketId bucket = 0; bucket < kBuckets; ++bucket) {
      starts.emplace_back(rank, bucket);
      ranks[rank]->add({.count = 100 + 400 * (bucket % 3)}, hub.grid(),
                       without_eager(job.algorithm), 0, urgency[bucket]);
    }
  }
  std::vector<std::vector<std::uint64_t>> iterations(ranks.size(),
                                                     std::vector<std::uint64_t>(kBuckets));
  std::size_t unfinished = ranks.size() * kBuckets;
  for (std::size_t steps = 0; unfinished > 0; ++steps) {
    if (steps == 1'000'000) {
      ADD_FAILURE() << "dead-locked: " << ranks[0]->executor().describe_wait();
      return {};
    }
    if (!starts.empty() && random() % 4 == 0) {
      std::swap(starts[random() % starts.size()], starts.back());
      const auto [rank, bucket] = starts.back();
      starts.pop_back();
      ranks[rank]->start(bucket, iterations[rank][bucket]);
    }
    const std::size_t polled = random() % ranks.size();
    Rank& rank = *ranks[polled];
    rank.transport().poll();
    rank.executor().poll();
    for (BucketId bucket : rank.executor().take_finished()) {
      const std::uint64_t iteration = iterations[polled][bucket]++;
      EXPECT_EQ(rank.wrong(bucket, iteration), "");
      if (iteration + 1 < kIterations) {
        starts.emplace_back(polled, bucket);
      } else {
        --unfinished;
      }
    }
  }
  std::vector<std::vector<std::byte>> bytes;
  for (BucketId bucket = 0; bucket < kBuckets; ++bucket) {
    bytes.push_back(ranks[0]->result(bucket));
  }
  return bytes;
}

class UrgentJobs : public testing::TestWithParam<Job> {};

TEST_P(UrgentJobs, HaveTheSameBitsForAnyInterleaving) {
  const auto expected = results(GetParam(), 0, false);
  for (std::uint64_t seed = 1; seed <= (test::kSanitized ? 3 : 20); ++seed) {
    SCOPED_TRACE(text(GetParam()) + " seed " + std::to_string(seed));
    EXPECT_EQ(results(GetParam(), seed, true), expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Jobs, UrgentJobs,
                         testing::Values(Job{{1, 1, 1}, "ring"}, Job{{1, 1, 1, 1}, "direct"},
                                         Job{{1, 1, 1, 1}, "halving_doubling"},
                                         Job{{1, 1, 1, 1, 1}, "tree"}, Job{{1, 1, 1}, "flat"},
                                         Job{{2, 2}, "hierarchical:direct,ring"},
                                         Job{{2, 1, 2}, "hierarchical:direct,direct"}));

}  // namespace
}  // namespace kolo
