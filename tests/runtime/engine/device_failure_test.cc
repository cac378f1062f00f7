// Tests failures on devices: errors of their libraries, ranks that freeze in a collective, and
// aborts that hang. Every rank must get the error, and every ticket must end.

#include <gmock/gmock.h>

#include "tests/support/engine_job.h"
#include "tests/support/faulty_communicator.h"

namespace kolo {
namespace {

using test::EngineJob;
using test::FaultPlan;
using test::FaultyCommunicator;
using test::JobDevices;

constexpr int kRanks = 4;
constexpr int kFaulty = 2;
constexpr std::size_t kCount = 600;

/// A job of two nodes with two ranks each. One group of one rank has a fault.
class FaultyJob {
 public:
  FaultyJob(std::uint64_t seed, const std::string& members, const FaultPlan& plan,
            const std::string& algorithm)
      : job(ProcessGrid::with_node_sizes({2, 2}),
            {.algorithm = algorithm, .device_fusion_bytes = 0, .device_chunk_bytes = 1024}, seed,
            devices(members, plan)) {
    groups = job.register_sets({{.name = "a", .shape = {kCount}, .memory = MemoryKind::kDevice},
                                {.name = "b", .shape = {kCount}, .memory = MemoryKind::kDevice},
                                {.name = "c", .shape = {kCount}, .memory = MemoryKind::kDevice}});
    for (int rank = 0; rank < kRanks; ++rank) {
      for (std::size_t gradient = 0; gradient < 3; ++gradient) {
        test::mark(job.engine(rank), group(rank), gradient);
      }
    }
  }

  void run_to_end() { job.run_until_ended(std::chrono::milliseconds(50)); }

  std::string error(int rank) {
    try {
      return group(rank).iterations().wait(std::chrono::milliseconds(1)) ? "" : "no answer";
    } catch (const KoloError& e) {
      return e.what();
    }
  }

  GradientSetState& group(int rank) { return *groups[static_cast<std::size_t>(rank)]; }

  EngineJob job;
  std::vector<std::shared_ptr<GradientSetState>> groups;

 private:
  static JobDevices devices(const std::string& members, const FaultPlan& plan) {
    return {.wrap = [members, plan](int rank, const std::string& of,
                                    std::unique_ptr<DeviceCommunicator> group) {
      if (rank == kFaulty && of == members) {
        group = std::make_unique<FaultyCommunicator>(std::move(group), plan);
      }
      return group;
    }};
  }
};

struct Where {
  const char* members;
  const char* algorithm;
};

class DeviceFailure : public testing::TestWithParam<Where> {};

TEST_P(DeviceFailure, OfTheLibraryIsTheSameErrorOnAllRanks) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    FaultyJob faulty(seed, GetParam().members, {.fail_at = seed % 3}, GetParam().algorithm);
    faulty.run_to_end();
    for (int rank = 0; rank < kRanks; ++rank) {
      EXPECT_THAT(faulty.error(rank), testing::HasSubstr("rank 2: run: a planned failure"))
          << "rank " << rank;
    }
  }
}

// The frozen rank's engine still polls, so only a waiting rank can end the collective. Here rank 0
// does so, as after its operation_timeout.
TEST_P(DeviceFailure, ARankFrozenInACollectiveIsAborted) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    FaultyJob faulty(seed, GetParam().members, {.freeze_at = seed % 3}, GetParam().algorithm);
    for (int step = 0; step < 2000; ++step) {
      for (int rank = 0; rank < kRanks; ++rank) {
        faulty.job.engine(rank).poll();
        faulty.job.device(rank).step();
      }
    }
    EXPECT_FALSE(faulty.job.engine(kFaulty).idle());
    faulty.job.engine(0).abort(
        {.code = ErrorCode::kTimeout, .rank = 0, .what = "rank 0 waited too long"});
    faulty.run_to_end();
    for (int rank = 0; rank < kRanks; ++rank) {
      EXPECT_THAT(faulty.error(rank), testing::HasSubstr("waited too long")) << "rank " << rank;
      faulty.job.device(rank).settle();  // no enqueued work remains
    }
  }
}

TEST_P(DeviceFailure, AnAbortThatHangsKeepsNobody) {
  FaultyJob faulty(3, GetParam().members, {.fail_at = 0, .abort_hangs = true},
                   GetParam().algorithm);
  faulty.run_to_end();
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_THAT(faulty.error(rank), testing::HasSubstr("rank 2: run: a planned failure"))
        << "rank " << rank;
  }
}

TEST_P(DeviceFailure, ALateRankIsNoFailure) {
  FaultyJob faulty(5, GetParam().members, {.delay_polls = 500}, GetParam().algorithm);
  faulty.job.run_until_idle();
  for (int rank = 0; rank < kRanks; ++rank) EXPECT_EQ(faulty.error(rank), "");
}

INSTANTIATE_TEST_SUITE_P(Groups, DeviceFailure,
                         testing::Values(Where{"node 1", "hierarchical:native,ring"},
                                         Where{"world", "native"}),
                         [](const auto& test) {
                           return std::string(test.param.members).substr(0, 4) + "Group";
                         });

}  // namespace
}  // namespace kolo
