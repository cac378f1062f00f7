// Uses that some ranks have ended when another rank comes to them with other arguments.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/engine_job.h"

namespace kolo {
namespace {

using test::EngineJob;
using test::error_of;
using test::view;

/// The engines of one node, whose ranks all use the name 'x'.
class PastUses : public testing::TestWithParam<int> {
 protected:
  /// The last rank's call, in the error of all.
  static constexpr const char* kOther = "submits 'x': all_reduce float32 [64] sum";

  int last() const { return GetParam() - 1; }

  std::shared_ptr<Operation> submit(EngineJob& job, int rank, OperationKind kind) {
    auto& mine = data_[static_cast<std::size_t>(rank)];
    return job.submit(rank, {.kind = kind, .name = "x", .buffer = view(mine)});
  }

  std::vector<std::shared_ptr<Operation>> submit_all(EngineJob& job, OperationKind kind) {
    std::vector<std::shared_ptr<Operation>> operations;
    for (int rank = 0; rank <= last(); ++rank) operations.push_back(submit(job, rank, kind));
    return operations;
  }

  /// The last rank comes with another operation; threads of all that wait get the error.
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

  /// Of the next use, at a rank that had none pending when a former one was rejected.
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

// The root does not wait for the last rank before its next use, of which the others have the
// elements, too: their use after that fails.
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

// The root does something else meanwhile: its next use fails as that of the others did.
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

}  // namespace
}  // namespace kolo
