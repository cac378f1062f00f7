// Some ranks have ended a use when another rank begins it, perhaps with other arguments.

#include <gmock/gmock.h>

#include <thread>

#include "tests/support/engine_job.h"

namespace kolo {
namespace {

using test::EngineJob;
using test::error_of;
using test::view;

/// The engines of one node, whose ranks all use the name 'x'.
class PastUses : public testing::TestWithParam<int> {
 protected:
  /// The last rank's call as quoted in the error of all ranks.
  static constexpr const char* kOther = "submits 'x': all_reduce float32 [64] sum";

  int last() const { return GetParam() - 1; }

  std::shared_ptr<Operation> submit(EngineJob& job, int rank, OperationKind kind) {
    auto& mine = data_[static_cast<std::size_t>(rank)];
    return job.submit(rank, {.kind = kind, .name = "x", .tensors = test::in_place(view(mine))});
  }

  std::vector<std::shared_ptr<Operation>> submit_all(EngineJob& job, OperationKind kind) {
    std::vector<std::shared_ptr<Operation>> operations;
    for (int rank = 0; rank <= last(); ++rank) operations.push_back(submit(job, rank, kind));
    return operations;
  }

  /// Makes the last rank call another operation. All waiting threads must get the error.
  void expect_rejected_with_the_last(EngineJob& job,
                                     std::vector<std::shared_ptr<Operation>> pending) {
    pending.push_back(submit(job, last(), OperationKind::kAllReduce));
    std::vector<std::thread> waiting;
    for (const auto& operation : pending) {
      waiting.emplace_back([&operation] {
        EXPECT_THROW(operation->ticket->wait(std::chrono::milliseconds(0)), KoloError);
      });
    }
    job.finish(pending, std::chrono::milliseconds(10));
    for (std::thread& thread : waiting) thread.join();
    for (const auto& operation : pending) {
      EXPECT_THAT(error_of(*operation), testing::HasSubstr(kOther));
    }
  }

  /// Checks the error of the next use on a rank that had no pending use at the time of a rejection.
  void expect_late_rejection(EngineJob& job, int rank) {
    const auto late = submit(job, rank, OperationKind::kBroadcast);
    job.finish({late});
    EXPECT_THAT(error_of(*late), testing::HasSubstr(kOther));
  }

  void expect_usable(EngineJob& job, OperationKind kind) {
    const auto operations = submit_all(job, kind);
    job.finish(operations);
    for (const auto& operation : operations) EXPECT_EQ(error_of(*operation), "");
  }

  std::vector<std::vector<float>> data_{static_cast<std::size_t>(GetParam()),
                                        std::vector<float>(64, 1.0F)};
};

// The root begins its next use without waiting for the last rank. The other ranks also receive that
// use's elements, and fail in the use after it.
TEST_P(PastUses, DoNotHinderARejection) {
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    EngineJob job(ProcessGrid::with_node_sizes({GetParam()}), {}, seed);
    job.finish(submit_all(job, OperationKind::kBroadcast));

    job.finish({submit(job, 0, OperationKind::kBroadcast)});
    const auto next = submit(job, 0, OperationKind::kBroadcast);
    for (int rank = 1; rank < last(); ++rank) {
      for (int use = 0; use < 2; ++use) job.finish({submit(job, rank, OperationKind::kBroadcast)});
    }
    expect_rejected_with_the_last(job, {next});
    for (int rank = 1; rank < last(); ++rank) expect_late_rejection(job, rank);
    expect_usable(job, OperationKind::kBroadcast);
    expect_usable(job, OperationKind::kAllReduce);
    EXPECT_EQ(job.close(), "");
  }
}

// The root is busy meanwhile. Its next use fails like the uses of the other ranks.
TEST_P(PastUses, AreFollowedByTheRejectionAtWhoeverWasBusy) {
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    EngineJob job(ProcessGrid::with_node_sizes({GetParam()}), {}, seed);
    job.finish(submit_all(job, OperationKind::kBroadcast));
    job.finish({submit(job, 0, OperationKind::kBroadcast)});
    std::vector<std::shared_ptr<Operation>> pending;
    for (int rank = 1; rank < last(); ++rank) {
      job.finish({submit(job, rank, OperationKind::kBroadcast)});
      pending.push_back(submit(job, rank, OperationKind::kBroadcast));
    }
    expect_rejected_with_the_last(job, std::move(pending));
    expect_late_rejection(job, 0);
    expect_usable(job, OperationKind::kBroadcast);
    EXPECT_EQ(job.close(), "");
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, PastUses, testing::Values(3, 4));

// --- Ranks that only send do not run ahead of slow ones without limit
// ------------------------------

constexpr int kRanksOfLoad = 3;

struct Load {
  std::size_t count, uses;  ///< Floats in each use.
  std::size_t bound;        ///< Uses with more than 4 MiB, at most 1024.
};

/// Each rank is a node. The last rank is slow.
class UsesAhead : public testing::TestWithParam<Load> {
 protected:
  std::size_t count() const { return GetParam().count; }

  void submit(int rank) {
    auto& buffers = data_[static_cast<std::size_t>(rank)];
    for (std::size_t use = 0; use < GetParam().uses; ++use) {
      auto& values = buffers.emplace_back(count(), rank == 0 ? static_cast<float>(use + 1) : 0.0F);
      operations_[static_cast<std::size_t>(rank)].push_back(
          job_.submit(rank, {.kind = OperationKind::kBroadcast,
                             .name = "x",
                             .tensors = test::in_place(view(values))}));
    }
  }

  /// Returns the number of uses that have ended on a rank.
  std::size_t ended(int rank) const {
    const auto& operations = operations_[static_cast<std::size_t>(rank)];
    return static_cast<std::size_t>(
        std::ranges::count_if(operations, [](const auto& each) { return each->ticket->done(); }));
  }

  EngineJob job_{ProcessGrid::with_node_sizes({1, 1, 1}), {}, 3};
  std::vector<std::vector<float>> data_[kRanksOfLoad];
  std::vector<std::shared_ptr<Operation>> operations_[kRanksOfLoad];
};

TEST_P(UsesAhead, EndOnceSomeMegabytesWait) {
  // All ranks agree on the name.
  std::vector<std::vector<float>> first(kRanksOfLoad, std::vector<float>(count(), 1.0F));
  std::vector<std::shared_ptr<Operation>> begin;
  for (int rank = 0; rank < kRanksOfLoad; ++rank) {
    begin.push_back(job_.submit(
        rank, {.kind = OperationKind::kBroadcast,
               .name = "x",
               .tensors = test::in_place(view(first[static_cast<std::size_t>(rank)]))}));
  }
  job_.finish(begin);
  for (int rank = 0; rank + 1 < kRanksOfLoad; ++rank) submit(rank);
  job_.poll(20000);
  const std::size_t ahead = ended(0);
  EXPECT_GT(ahead, 1u) << "the root may end before others begin";
  EXPECT_LT(ahead, GetParam().bound);
  submit(kRanksOfLoad - 1);
  std::vector<std::shared_ptr<Operation>> all;
  for (const auto& mine : operations_) all.insert(all.end(), mine.begin(), mine.end());
  job_.finish(all);
  for (int rank = 0; rank < kRanksOfLoad; ++rank) {
    for (std::size_t use = 0; use < GetParam().uses; ++use) {
      ASSERT_EQ(error_of(*operations_[rank][use]), "");
      ASSERT_EQ(data_[rank][use], std::vector<float>(count(), static_cast<float>(use + 1)))
          << "rank " << rank << ", use " << use;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Counts, UsesAhead,
                         testing::Values(Load{2, 3000, 1024}, Load{20000, 200, 64}));

}  // namespace
}  // namespace kolo
