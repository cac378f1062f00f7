#include "comm/schedule/joint_ledger.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "comm/base/aligned_memory.h"

namespace kolo {
namespace {

/// The ledgers of several ranks over one memory, which held something else before.
class Ranks {
 public:
  Ranks(std::size_t ranks, std::size_t shares, std::size_t pieces, std::uint64_t first)
      : memory_(allocate_aligned(JointLedger::bytes(shares))) {
    std::memset(memory_.get(), 0xA5, JointLedger::bytes(shares));
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      ledgers_.emplace_back(std::span(memory_.get(), JointLedger::bytes(shares)), pieces);
    }
    ledgers_[0].clear(first);
  }

  JointLedger& operator[](std::size_t rank) { return ledgers_[rank]; }

 private:
  AlignedMemory memory_;
  std::vector<JointLedger> ledgers_;
};

TEST(JointLedger, GivesEachPieceOnceInEachIteration) {
  for (const std::size_t shares : std::initializer_list<std::size_t>{1, 2, 3, 8}) {
    for (const std::size_t pieces : std::initializer_list<std::size_t>{1, 2, 5, 64, 1000}) {
      // The bits of an iteration's number that words hold begin anew now and then.
      for (const std::uint64_t first : std::initializer_list<std::uint64_t>{
               0, 7, (std::uint64_t{1} << 24) - 1, std::uint64_t{1} << 24}) {
        SCOPED_TRACE(testing::Message() << shares << " shares, " << pieces << " pieces");
        Ranks ranks(3, shares, pieces, first);
        for (std::uint64_t iteration = first; iteration < first + 3; ++iteration) {
          std::vector<int> taken(pieces);
          int last = 0;
          for (std::size_t rank = 0;; ++rank) {
            const auto piece = ranks[rank % 3].take(iteration, rank % shares);
            EXPECT_EQ(ranks[rank % 3].is_done(iteration), !piece) << "all before are finished";
            if (!piece) break;
            ++taken.at(*piece);
            last += ranks[rank % 3].finish(iteration) ? 1 : 0;
          }
          EXPECT_EQ(taken, std::vector<int>(pieces, 1));
          EXPECT_EQ(last, 1);
          EXPECT_EQ(ranks[1].take(iteration, 0), std::nullopt);
        }
      }
    }
  }
}

TEST(JointLedger, GivesFirstWhatIsAtHome) {
  Ranks ranks(2, 2, 8, 0);
  for (const std::size_t piece : std::initializer_list<std::size_t>{4, 5, 6}) {
    EXPECT_EQ(ranks[1].take(0, 1), piece);
  }
  for (const std::size_t piece : std::initializer_list<std::size_t>{0, 1, 2, 3, 7}) {
    EXPECT_EQ(ranks[0].take(0, 0), piece);
  }
  EXPECT_EQ(ranks[0].take(0, 0), std::nullopt);
  EXPECT_EQ(ranks[1].take(0, 1), std::nullopt);
  // From the back of others, whose own go on at the front.
  for (const std::size_t piece : std::initializer_list<std::size_t>{0, 1, 2, 3, 7, 6}) {
    EXPECT_EQ(ranks[0].take(1, 0), piece);
  }
  EXPECT_EQ(ranks[1].take(1, 1), 4u);
}

// A rank that is slow to leave an iteration sees that it is done, however far others are in the
// next.
TEST(JointLedger, IsDoneForThoseWhoComeLate) {
  Ranks ranks(2, 1, 2, 0);
  for (std::uint64_t iteration = 0; iteration < 3; ++iteration) {
    EXPECT_FALSE(ranks[1].is_done(iteration));
    while (ranks[0].take(iteration, 0)) ranks[0].finish(iteration);
    EXPECT_TRUE(ranks[1].is_done(iteration));
  }
  ASSERT_TRUE(ranks[0].take(3, 0));
  EXPECT_TRUE(ranks[1].is_done(2)) << "a piece is taken";
  ranks[0].finish(3);
  EXPECT_TRUE(ranks[1].is_done(2)) << "and finished";
  EXPECT_FALSE(ranks[0].is_done(3));
}

// What a piece holds is not atomic: the thread sanitizer looks on.
TEST(JointLedger, ShowsWhatOthersWroteBeforeTheyFinished) {
  constexpr std::size_t kRanks = 4, kPieces = 37;
  constexpr std::uint64_t kIterations = 200;
  Ranks ranks(kRanks, 2, kPieces, 0);
  std::vector<std::uint64_t> written(kPieces);
  std::vector<std::atomic<std::uint64_t>> arrived(kRanks);
  const auto run = [&](std::size_t rank) {
    for (std::uint64_t iteration = 0; iteration < kIterations; ++iteration) {
      arrived[rank].store(iteration + 1, std::memory_order_release);
      for (const auto& other : arrived) {
        while (other.load(std::memory_order_acquire) <= iteration) std::this_thread::yield();
      }
      while (const auto piece = ranks[rank].take(iteration, rank % 2)) {
        ++written[*piece];
        ranks[rank].finish(iteration);
      }
      while (!ranks[rank].is_done(iteration)) std::this_thread::yield();
      for (const std::uint64_t times : written) ASSERT_EQ(times, iteration + 1);
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < kRanks; ++rank) threads.emplace_back(run, rank);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace kolo
