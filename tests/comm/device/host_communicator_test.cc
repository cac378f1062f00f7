#include "tests/support/device/host_communicator.h"

#include <gmock/gmock.h>

#include "tests/comm/device/device_communicator_conformance.h"
#include "tests/comm/device/device_communicator_parts_conformance.h"
#include "tests/comm/device/host_group_job.h"

namespace kolo::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::vector<GroupCase> seeded_cases() {
  std::vector<GroupCase> cases;
  for (const int size : {1, 2, 3, 4}) {
    for (std::uint64_t seed = 1; seed <= 2; ++seed) {
      cases.push_back({std::to_string(size) + "_ranks_seed_" + std::to_string(seed),
                       [=] { return std::make_unique<SeededGroupJob>(size, seed); }});
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Seeded, DeviceCommunicatorConformance, testing::ValuesIn(seeded_cases()),
                         group_case_name);

/// Memory and a stream for each of `size` ranks.
struct Ranks {
  Ranks(int size, std::uint64_t seed) : job(size, seed) {
    for (int rank = 0; rank < size; ++rank) {
      desks.emplace_back(job.device(rank), *job.group(rank), std::size_t{1024});
    }
  }
  DeviceCommunicator& group(std::size_t rank) { return *job.group(static_cast<int>(rank)); }
  Stream& stream(std::size_t rank) { return *desks[rank].stream; }
  std::byte* data(std::size_t rank) { return desks[rank].source.data(); }
  void all_reduce(std::size_t rank, std::size_t count) {
    group(rank).all_reduce(stream(rank), data(rank), data(rank), count, DType::kFloat32,
                           ReduceOp::kSum);
  }

  SeededGroupJob job;
  std::vector<GroupDesk> desks;
};

TEST(HostCommunicator, CallsThatDifferAreAMismatchOnAllRanks) {
  struct Difference {
    std::function<void(Ranks&)> call;
    std::string what;
  };
  const Difference differences[] = {
      {[](Ranks& ranks) { ranks.all_reduce(1, 6); }, "an all-reduce (sum) of 6 float32 on rank 1"},
      {[](Ranks& ranks) {
         ranks.group(1).all_reduce(ranks.stream(1), ranks.data(1), ranks.data(1), 5, DType::kInt32,
                                   ReduceOp::kSum);
       },
       "an all-reduce (sum) of 5 int32 on rank 1"},
      {[](Ranks& ranks) {
         ranks.group(1).all_reduce(ranks.stream(1), ranks.data(1), ranks.data(1), 5,
                                   DType::kFloat32, ReduceOp::kMax);
       },
       "an all-reduce (max) of 5 float32 on rank 1"},
      {[](Ranks& ranks) {
         ranks.group(1).all_gather(ranks.stream(1), ranks.data(1), ranks.desks[1].target.data(), 5,
                                   DType::kFloat32);
       },
       "an all-gather of parts of 5 float32 on rank 1"},
      {[](Ranks& ranks) {
         ranks.group(1).reduce_scatter(ranks.stream(1), ranks.data(1), ranks.desks[1].target.data(),
                                       5, DType::kFloat32, ReduceOp::kSum);
       },
       "a reduce-scatter (sum) in parts of 5 float32 on rank 1"},
      {[](Ranks& ranks) { EXPECT_EQ(ranks.group(1).finalize(), CommunicatorState::kFinalizing); },
       "the end of the group on rank 1"},
  };
  for (const Difference& difference : differences) {
    SCOPED_TRACE(difference.what);
    Ranks ranks(3, 1);
    for (std::size_t rank = 0; rank < 3; ++rank) ranks.all_reduce(rank, 4);
    ranks.job.settle();
    ranks.all_reduce(0, 5);
    ranks.job.settle();
    difference.call(ranks);
    ranks.job.settle();
    for (std::size_t rank = 0; rank < 3; ++rank) {
      const auto error = ranks.group(rank).async_error();
      ASSERT_TRUE(error) << "rank " << rank;
      EXPECT_EQ(error->code, ErrorCode::kMismatch);
      EXPECT_EQ(error->rank, static_cast<int>(rank));
      EXPECT_THAT(error->what, AllOf(HasSubstr("collective 1 of the group is"),
                                     HasSubstr("an all-reduce (sum) of 5 float32 on rank 0"),
                                     HasSubstr(difference.what)));
      EXPECT_TRUE(ranks.group(rank).abort(kAbortWithin));
    }
    ranks.job.settle();
  }
}

TEST(HostCommunicator, AnAbortIsALostPeerToTheOthers) {
  Ranks ranks(3, 1);
  EXPECT_TRUE(ranks.group(1).abort(kAbortWithin));
  EXPECT_FALSE(ranks.group(1).async_error());
  for (const std::size_t rank : {std::size_t{0}, std::size_t{2}}) {
    const auto error = ranks.group(rank).async_error();
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code, ErrorCode::kPeerLost);
    EXPECT_EQ(error->rank, static_cast<int>(rank));
    EXPECT_EQ(error->peer, 1);
  }
}

TEST(HostCommunicator, ErrorsNameMembersByTheRanksThatTheHubWasGiven) {
  SeededHostDevice device(1);
  HostCommunicatorHub hub({4, 6});
  const auto first = hub.group(0, device);
  hub.group(1, device).reset();  // aborts, because it was not finalized
  ASSERT_TRUE(first->async_error());
  EXPECT_EQ(first->async_error()->rank, 4);
  EXPECT_EQ(first->async_error()->peer, 6);
}

TEST(HostCommunicator, ARanksCollectivesRunInTheOrderOfItsCallsOnAnyStreams) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(seed);
    Ranks ranks(2, seed);
    std::vector<std::unique_ptr<Stream>> others;
    std::vector<std::unique_ptr<Event>> events;
    for (std::size_t rank = 0; rank < 2; ++rank) {
      others.push_back(ranks.job.device(static_cast<int>(rank)).make_stream());
      events.push_back(ranks.job.device(static_cast<int>(rank)).make_event());
      ranks.all_reduce(rank, 3);
      ranks.group(rank).all_reduce(*others[rank], ranks.desks[rank].target.data(),
                                   ranks.desks[rank].target.data(), 3, DType::kFloat32,
                                   ReduceOp::kSum);
      others[rank]->record(*events[rank]);
      ranks.stream(rank).record(*ranks.desks[rank].finished);
    }
    while (ranks.job.step()) {
      for (std::size_t rank = 0; rank < 2; ++rank) {
        // No rank may complete the second call before the last rank has made the first one.
        EXPECT_TRUE(!events[rank]->done() || ranks.desks[0].finished->done() ||
                    ranks.desks[1].finished->done());
      }
    }
    EXPECT_TRUE(events[0]->done() && events[1]->done());
  }
}

}  // namespace
}  // namespace kolo::test
