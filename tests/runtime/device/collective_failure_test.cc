// Collectives on device memory fail in the library, or a rank freezes in them. All ranks must get
// the same error, and every ticket must end.

#include <gmock/gmock.h>

#include "tests/runtime/calls/collective_calls.h"
#include "tests/support/engine_job.h"
#include "tests/support/faulty_communicator.h"

namespace kolo {
namespace {

using test::EngineJob;
using test::FaultPlan;
using test::FaultyCommunicator;
using test::JobDevices;

/// One use of a collective by three ranks of one node. The group of one rank has a fault.
class FaultyCollective {
 public:
  FaultyCollective(const test::CollectiveCall& call, std::uint64_t seed, const FaultPlan& plan)
      : job(ProcessGrid::with_node_sizes({kRanks}), {}, seed, devices(plan)) {
    const std::vector<std::size_t> counts(kRanks, 40);
    const CollectiveSpec spec = call.spec(counts, 0);
    for (int rank = 0; rank < kRanks; ++rank) {
      buffers_.push_back(
          std::make_unique<test::CollectiveBuffers>(test::buffers_for(spec, rank, false)));
      OperationPool pool;
      operations_.push_back(
          job.submit(rank, *call.make(OperationCalls(pool, rank, kRanks), call.name,
                                      *buffers_.back(), counts, 0, false)));
    }
  }

  void run_to_end() { job.run_until_ended(std::chrono::milliseconds(50)); }
  std::string error(int rank) const {
    return test::error_of(*operations_[static_cast<std::size_t>(rank)]);
  }

  static constexpr int kRanks = 3;
  EngineJob job;

 private:
  static JobDevices devices(const FaultPlan& plan) {
    return {
        .holds_buffers = true,
        .wrap = [plan](int rank, const std::string& of, std::unique_ptr<DeviceCommunicator> group) {
          if (rank == 1 && of == "world") {
            group = std::make_unique<FaultyCommunicator>(std::move(group), plan);
          }
          return group;
        }};
  }

  std::vector<std::unique_ptr<test::CollectiveBuffers>> buffers_;
  std::vector<std::shared_ptr<Operation>> operations_;
};

class DeviceCollectiveFailure : public testing::TestWithParam<test::CollectiveCall> {};

// A library that refuses a call enqueues nothing, so the events after the call are done at once.
TEST_P(DeviceCollectiveFailure, OfTheLibraryIsTheSameErrorOnAllRanks) {
  for (const bool is_refused : {false, true}) {
    test::FaultPlan plan;
    (is_refused ? plan.refuse_at : plan.fail_at) = 0;
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
      FaultyCollective faulty(GetParam(), seed, plan);
      faulty.run_to_end();
      for (int rank = 0; rank < FaultyCollective::kRanks; ++rank) {
        EXPECT_THAT(faulty.error(rank), testing::HasSubstr("rank 1: run: a planned failure"))
            << "rank " << rank << " seed " << seed << (is_refused ? " refused" : "");
      }
    }
  }
}

TEST_P(DeviceCollectiveFailure, OfARankThatFreezesIsEndedByWhoeverWaits) {
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    FaultyCollective faulty(GetParam(), seed, {.freeze_at = 0});
    faulty.job.poll(20'000);
    EXPECT_FALSE(faulty.job.engine(1).idle()) << "seed " << seed;
    faulty.job.engine(0).abort(
        {.code = ErrorCode::kTimeout, .rank = 0, .what = "rank 0 waited too long"});
    faulty.run_to_end();
    for (int rank = 0; rank < FaultyCollective::kRanks; ++rank) {
      EXPECT_THAT(faulty.error(rank), testing::HasSubstr("waited too long")) << "rank " << rank;
      faulty.job.device(rank).settle();  // no enqueued work remains
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, DeviceCollectiveFailure, testing::ValuesIn(test::collective_calls()),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace kolo
