#include "comm/schedule/joint_sum.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "comm/base/aligned_memory.h"
#include "comm/transport/in_process_transport.h"

namespace kolo {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::size_t kCount = 100'000;  // of 4 bytes: seven pieces, the last one short

/// Three ranks in one thread.
class JointSumTest : public testing::Test {
 protected:
  static constexpr int kRanks = 3;

  JointSumTest() {
    for (int rank = 0; rank < kRanks; ++rank) {
      Step& step = steps_.emplace_back(Step{.kind = StepKind::kJoint, .ordinal = 2});
      step.target = {.rank = rank, .count = kCount};
      for (int peer = 0; peer < kRanks; ++peer) {
        step.sources.push_back({.rank = peer, .count = kCount});
        if (peer != rank) step.mirrors.push_back(step.sources.back());
      }
      transports_.push_back(hub_.transport(rank));
    }
    for (int rank = 0; rank < kRanks; ++rank) {
      const auto index = static_cast<std::size_t>(rank);
      sums_.push_back(std::make_unique<JointSum>(
          *transports_[index], steps_[index], 4,
          JointSum::Where{.first_flag = 5,
                          .flag_base = 40,
                          .first_iteration = 3,
                          .ledger = {ledger_.get(), JointLedger::bytes(2)}}));
    }
  }
  ~JointSumTest() override {
    sums_.clear();
    for (const auto& transport : transports_) transport->shutdown(false);
  }

  std::vector<int> awaited(std::size_t rank) const {
    std::vector<int> peers;
    sums_[rank]->append_awaited_peers(peers);
    return peers;
  }

  InProcessHub hub_{ProcessGrid::with_node_sizes({kRanks})};
  std::vector<std::unique_ptr<Transport>> transports_;
  AlignedMemory ledger_ = allocate_aligned(JointLedger::bytes(2));
  std::vector<Step> steps_;
  std::vector<std::unique_ptr<JointSum>> sums_;
};

TEST_F(JointSumTest, BeginsWhenAllAreIn) {
  sums_[1]->arrive(3);
  EXPECT_TRUE(sums_[1]->waits());
  EXPECT_THAT(awaited(1), ElementsAre(0, 2));
  sums_[0]->arrive(3);
  EXPECT_TRUE(sums_[0]->waits());
  EXPECT_THAT(awaited(1), ElementsAre(2));
  sums_[2]->arrive(3);
  for (const auto& sum : sums_) {
    EXPECT_FALSE(sum->waits());
    EXPECT_FALSE(sum->is_over());
  }
  EXPECT_THAT(awaited(1), IsEmpty());
}

TEST_F(JointSumTest, CoversAllElementsOnceAndIsOverForAllTogether) {
  for (std::uint64_t iteration = 3; iteration < 6; ++iteration) {
    for (const auto& sum : sums_) sum->arrive(iteration);
    std::vector<int> times(kCount);
    const auto work = [&](std::size_t rank) {
      const auto piece = sums_[rank]->take();
      if (!piece) return false;
      for (std::size_t i = 0; i < piece->count; ++i) ++times.at(piece->first + i);
      return true;
    };
    ASSERT_TRUE(work(2)) << "and does not finish";
    while (work(0)) sums_[0]->finish();
    while (work(1)) sums_[1]->finish();
    EXPECT_EQ(times, std::vector<int>(kCount, 1));
    EXPECT_TRUE(sums_[0]->waits()) << "for rank 2";
    EXPECT_FALSE(sums_[0]->is_over());
    EXPECT_THAT(awaited(0), ElementsAre(1, 2));
    sums_[2]->finish();
    EXPECT_FALSE(work(2));
    for (const auto& sum : sums_) {
      EXPECT_TRUE(sum->is_over());
      EXPECT_FALSE(sum->waits());
    }
  }
}

// Whoever sleeps meanwhile is woken by who does the last piece.
TEST_F(JointSumTest, TheLastPieceRings) {
  for (const auto& sum : sums_) sum->arrive(3);
  while (transports_[2]->poll()) {
  }
  while (sums_[1]->take()) {
    EXPECT_FALSE(transports_[2]->poll());
    sums_[1]->finish();
  }
  EXPECT_TRUE(transports_[2]->poll());
}

}  // namespace
}  // namespace kolo
