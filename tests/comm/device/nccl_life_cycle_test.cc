// Tests NcclDeviceCommunicator with a fake library whose calls are in progress, stuck or failed.

#include <cstdlib>
#include <cstring>
#include <thread>

#include <gmock/gmock.h>

#include "comm/base/error.h"
#include "comm/device/cuda_device.h"
#include "comm/device/cuda_stream.h"
#include "comm/native/nccl_device_communicator.h"
#include "tests/support/fake_nccl.h"

namespace kolo::test {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr milliseconds kSoon{20};                     // a deadline that should pass
constexpr milliseconds kLate{30'000};                 // a deadline that should not pass
constexpr int kWithOverlap = NCCL_VERSION(2, 27, 3);  // a thread's calls may overlap

class NcclLifeCycle : public testing::Test {
 protected:
  std::unique_ptr<NcclDeviceCommunicator> connect(milliseconds deadline = kLate) {
    const std::vector<std::string> alone{NcclDeviceCommunicator::introduce(0)};
    return NcclDeviceCommunicator::connect(alone, 0, device_, deadline);
  }

  void all_reduce(NcclDeviceCommunicator& group) {
    group.all_reduce(stream_, nullptr, nullptr, 0, DType::kFloat32, ReduceOp::kSum);
  }

  /// Connects the ranks 0 and 1 of a group, both of which are here.
  std::vector<std::unique_ptr<NcclDeviceCommunicator>> connect_both(milliseconds deadline) {
    fake_nccl().version = kWithOverlap;
    const std::vector<std::string> two(2, NcclDeviceCommunicator::introduce(0));
    std::vector<std::unique_ptr<NcclDeviceCommunicator>> ranks;
    for (int rank = 0; rank < 2; ++rank) {
      ranks.push_back(NcclDeviceCommunicator::connect(two, rank, device_, deadline));
    }
    return ranks;
  }

  /// Sends an element to the other rank of two.
  void exchange(NcclDeviceCommunicator& group) {
    float element = 0, other = 0;
    std::vector<GroupPart> sent(2), received(2);
    const auto peer = static_cast<std::size_t>(1 - group.rank());
    sent[peer] = {&element, 1};
    received[peer] = {&other, 1};
    group.exchange(stream_, sent, received, DType::kFloat32);
  }

  static void wait_until_called(const std::string& function, std::ptrdiff_t times) {
    while (fake_nccl().called(function) < times) std::this_thread::yield();
  }

  static ErrorCode code_of(const std::function<void()>& call) {
    try {
      call();
    } catch (const KoloError& error) {
      return error.error().code;
    }
    ADD_FAILURE() << "did not fail";
    return ErrorCode::kInternal;
  }

  const FakeNcclScope scope_;
  const CudaDevice device_{0};
  CudaStream stream_{0};
};

TEST_F(NcclLifeCycle, WhatIsInProgressIsWaitedForAndEndsInOrder) {
  fake_nccl().polls_in_progress = 3;
  const auto world = connect();
  const auto node = world->split(0);
  node->reduce_scatter(stream_, nullptr, nullptr, 0, DType::kFloat32, ReduceOp::kSum);
  node->all_gather(stream_, nullptr, nullptr, 0, DType::kFloat32);
  all_reduce(*world);
  for (NcclDeviceCommunicator* group : {node.get(), world.get()}) {
    EXPECT_EQ(group->finalize(), CommunicatorState::kFinalizing);
    EXPECT_FALSE(group->async_error());
    while (group->finalize() == CommunicatorState::kFinalizing) {
    }
    EXPECT_EQ(group->finalize(), CommunicatorState::kFinalized);
    EXPECT_TRUE(group->abort(kLate));
    EXPECT_THROW(all_reduce(*group), UsageError);
  }
  EXPECT_THAT(fake_nccl().calls(),
              ElementsAre("init", "split", "reduce_scatter", "all_gather", "all_reduce", "finalize",
                          "destroy", "finalize", "destroy"));
}

TEST_F(NcclLifeCycle, PartsOfDifferentLengthsAreCallsOfOneLaunch) {
  const std::vector<std::string> three(3, NcclDeviceCommunicator::introduce(0));
  fake_nccl().polls_in_progress = 3;
  const auto group = NcclDeviceCommunicator::connect(three, 1, device_, kLate);
  const std::vector<std::size_t> even{4, 4, 4}, uneven{2, 0, 5};
  std::vector<float> in(12), out(12);
  const auto reduce = [&](const std::vector<std::size_t>& counts) {
    const GroupTensor tensor{in.data(), out.data(), counts};
    group->reduce_parts(stream_, {&tensor, 1}, DType::kFloat32, ReduceOp::kSum);
  };
  const auto gather = [&](const std::vector<std::size_t>& counts) {
    const GroupTensor tensor{in.data(), out.data(), counts};
    group->gather_parts(stream_, {&tensor, 1}, DType::kFloat32);
  };
  reduce(even);
  reduce(uneven);
  reduce({0, 9, 0});
  gather(even);
  gather(uneven);
  const std::vector<GroupPart> sent{{in.data(), 2}, {in.data(), 3}, {}};
  const std::vector<GroupPart> received{{}, {out.data(), 3}, {out.data() + 3, 1}};
  group->exchange(stream_, sent, received, DType::kFloat32);
  const std::vector<GroupPart> stays{{in.data(), 2}, {in.data() + 2, 3}, {}};
  const std::vector<GroupPart> here{{}, {in.data() + 2, 3}, {out.data(), 1}};
  group->exchange(stream_, stays, here, DType::kFloat32);
  EXPECT_FALSE(group->async_error());
  EXPECT_THAT(
      fake_nccl().calls(),
      ElementsAre("init", "start", "reduce_scatter", "end", "start", "reduce to 0", "reduce to 2",
                  "end", "start", "reduce to 1, here", "end", "start", "all_gather", "end", "start",
                  "broadcast from 0", "broadcast from 2", "end", "start", "send 2 to 0",
                  "send 3 to 1", "receive 3 from 1", "receive 1 from 2", "end", "start",
                  "send 2 to 0", "receive 1 from 2", "end"));
}

TEST_F(NcclLifeCycle, SeveralTensorsAreOneLaunch) {
  const std::vector<std::string> three(3, NcclDeviceCommunicator::introduce(0));
  const auto group = NcclDeviceCommunicator::connect(three, 1, device_, kLate);
  const std::vector<std::size_t> even{4, 4, 4}, uneven{2, 0, 5}, none(3);
  std::vector<float> in(20), out(20);
  const std::vector<GroupTensor> tensors{{in.data(), out.data(), even},
                                         {nullptr, nullptr, none},
                                         {in.data() + 12, out.data() + 12, uneven}};
  group->reduce_parts(stream_, tensors, DType::kFloat32, ReduceOp::kSum);
  group->gather_parts(stream_, tensors, DType::kFloat32);
  const std::vector<GroupPart> sent{{in.data(), 2}, {}, {}, {}, {}, {in.data() + 2, 3}};
  const std::vector<GroupPart> received{{}, {}, {}, {}, {}, {out.data(), 1}};
  group->exchange(stream_, sent, received, DType::kFloat32);
  EXPECT_FALSE(group->async_error());
  EXPECT_THAT(fake_nccl().calls(),
              ElementsAre("init", "start", "reduce_scatter", "reduce to 0", "reduce to 2", "end",
                          "start", "all_gather", "broadcast from 0", "broadcast from 2", "end",
                          "start", "send 2 to 0", "send 3 to 2", "receive 1 from 2", "end"));
}

TEST_F(NcclLifeCycle, ALaunchOfSeveralCallsThatDoesNotComeIsATimeOut) {
  const auto group = connect(kSoon);
  fake_nccl().stuck = true;
  float element = 0, other = 0;
  const GroupPart sent{&element, 1}, received{&other, 1};
  group->exchange(stream_, {&sent, 1}, {&received, 1}, DType::kFloat32);
  while (group->is_launching()) std::this_thread::yield();
  ASSERT_TRUE(group->async_error());
  EXPECT_EQ(group->async_error()->code, ErrorCode::kTimeout);
  EXPECT_THAT(group->async_error()->what, HasSubstr("an exchange"));
  EXPECT_TRUE(group->abort(kLate));
}

// NCCL connects to a peer for the first exchange, when the peer makes the same.
TEST_F(NcclLifeCycle, GroupsExchangeInOppositeOrders) {
  const auto one = connect_both(kSoon), other = connect_both(kSoon);
  fake_nccl().meets = true;
  exchange(*one[0]);
  exchange(*other[1]);
  exchange(*other[0]);
  exchange(*one[1]);
  for (const auto* ranks : {&one, &other}) {
    for (const auto& group : *ranks) EXPECT_FALSE(group->async_error());
  }
}

TEST_F(NcclLifeCycle, ALaunchOfOlderLibrariesIsWaitedFor) {
  for (const int version : {NCCL_VERSION(2, 26, 5), kWithOverlap}) {
    fake_nccl().version = version;
    const auto group = connect();
    fake_nccl().polls_in_progress = 1200;  // more than a launch takes that waits for no peer
    all_reduce(*group);
    EXPECT_EQ(group->is_launching(), version == kWithOverlap);
    fake_nccl().polls_in_progress = 0;
  }
}

// NCCL takes no call while a launch is in progress.
TEST_F(NcclLifeCycle, MemoryIsRegisteredAndFreedAfterALaunch) {
  const auto ranks = connect_both(kLate);
  NcclDeviceCommunicator& group = *ranks[0];
  DeviceMemory old = group.allocate(kFromNccl);
  fake_nccl().meets = true;
  exchange(group);
  EXPECT_TRUE(group.is_launching());
  EXPECT_EQ(group.finalize(), CommunicatorState::kFinalizing);
  const DeviceMemory memory = group.allocate(kFromNccl);
  old = {};
  EXPECT_EQ(fake_nccl().called("register"), 1);
  EXPECT_EQ(fake_nccl().called("deregister"), 0);
  exchange(*ranks[1]);
  EXPECT_FALSE(group.is_launching());
  EXPECT_EQ(fake_nccl().called("register"), 2);
  EXPECT_EQ(fake_nccl().called("deregister"), 1);
  EXPECT_EQ(fake_nccl().called("finalize"), 0);
  wait_until_called("ncclMemFree", 1);
}

TEST_F(NcclLifeCycle, AFurtherGroupConnectsWithoutWaiting) {
  NcclConnector connector(device_, kLate);
  const std::vector<std::byte> unique_id = connector.make_unique_id();
  EXPECT_EQ(unique_id.size(), connector.unique_id_bytes());
  fake_nccl().polls_in_progress = 3;
  const auto connecting = connector.connect(unique_id, 1, 2);
  EXPECT_EQ(connecting->poll(), nullptr);
  std::unique_ptr<DeviceCommunicator> group;
  while (!group) group = connecting->poll();
  EXPECT_EQ(group->rank(), 1);
  EXPECT_EQ(group->size(), 2);
  group.reset();
  EXPECT_THAT(fake_nccl().calls(), ElementsAre("init", "abort", "aborted"));
}

TEST_F(NcclLifeCycle, AFurtherGroupThatDoesNotConnectIsATimeOutAndAborted) {
  NcclConnector connector(device_, kSoon);
  const std::vector<std::byte> unique_id = connector.make_unique_id();
  fake_nccl().stuck = true;
  auto connecting = connector.connect(unique_id, 0, 2);
  EXPECT_EQ(code_of([&] {
              while (!connecting->poll()) std::this_thread::yield();
            }),
            ErrorCode::kTimeout);
  connecting.reset();
  wait_until_called("aborted", 1);
}

TEST_F(NcclLifeCycle, AFurtherGroupOfOtherVersionsIsAConfigurationError) {
  NcclConnector connector(device_, kLate);
  const std::vector<std::byte> unique_id = connector.make_unique_id();
  fake_nccl().version = NCCL_VERSION_CODE + 1;
  EXPECT_EQ(code_of([&] { connector.connect(unique_id, 1, 2); }), ErrorCode::kConfig);
  EXPECT_EQ(fake_nccl().called("init"), 0);
}

TEST_F(NcclLifeCycle, RanksThatDoNotConnectInTimeAreATimeOutAndAborted) {
  fake_nccl().stuck = true;
  EXPECT_EQ(code_of([&] { connect(kSoon); }), ErrorCode::kTimeout);
  wait_until_called("aborted", 1);
}

TEST_F(NcclLifeCycle, ANodeThatDoesNotConnectInTimeEndsTheWorldToo) {
  const auto world = connect(kSoon);
  fake_nccl().stuck = true;
  EXPECT_EQ(code_of([&] { world->split(0); }), ErrorCode::kTimeout);
  EXPECT_TRUE(world->abort(kLate));
  EXPECT_EQ(fake_nccl().called("aborted"), 1);
}

TEST_F(NcclLifeCycle, ALaunchThatDoesNotComeIsATimeOutAndTheLast) {
  const auto group = connect(kSoon);
  fake_nccl().stuck = true;
  all_reduce(*group);
  while (group->is_launching()) std::this_thread::yield();
  ASSERT_TRUE(group->async_error());
  EXPECT_EQ(group->async_error()->code, ErrorCode::kTimeout);
  EXPECT_THAT(group->async_error()->what, HasSubstr("an all-reduce"));
  all_reduce(*group);
  EXPECT_EQ(fake_nccl().called("all_reduce"), 1);
  EXPECT_TRUE(group->abort(kLate));
}

TEST_F(NcclLifeCycle, AFailedCommunicatorIsAbortedAndNotDestroyed) {
  const auto group = connect();
  fake_nccl().async_error = ncclRemoteError;
  const auto error = group->async_error();
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code, ErrorCode::kPeerLost);
  EXPECT_THAT(error->what, HasSubstr("the fake library says so"));
  fake_nccl().async_error = ncclInternalError;
  EXPECT_EQ(group->async_error()->what, error->what) << "the first failure stays";
  EXPECT_EQ(group->finalize(), CommunicatorState::kAborted);
  EXPECT_TRUE(group->abort(kLate));
  EXPECT_THAT(fake_nccl().calls(), ElementsAre("init", "abort", "aborted"));
}

TEST_F(NcclLifeCycle, AFailureDuringTheEndIsAnAbort) {
  const auto group = connect();
  fake_nccl().polls_in_progress = 5;
  EXPECT_EQ(group->finalize(), CommunicatorState::kFinalizing);
  fake_nccl().async_error = ncclSystemError;
  EXPECT_EQ(group->finalize(), CommunicatorState::kAborted);
  EXPECT_EQ(group->async_error()->code, ErrorCode::kPeerLost);
  EXPECT_TRUE(group->abort(kLate));
  EXPECT_EQ(fake_nccl().called("destroy"), 0);
}

TEST_F(NcclLifeCycle, AnAbortThatPassesItsDeadlineIsLeftBehindAndMayEndLater) {
  const auto world = connect();
  const auto node = world->split(0);
  fake_nccl().close_gate();
  EXPECT_FALSE(node->abort(milliseconds(0)));
  EXPECT_FALSE(world->abort(milliseconds(0)));
  EXPECT_FALSE(node->abort(milliseconds(1)));
  all_reduce(*node);
  EXPECT_EQ(node->finalize(), CommunicatorState::kAborted);
  wait_until_called("abort", 2);  // neither abort waits for the other
  fake_nccl().open_gate();
  EXPECT_TRUE(node->abort(kLate));
  EXPECT_TRUE(world->abort(kLate));
  EXPECT_EQ(fake_nccl().called("abort"), 2);
  EXPECT_EQ(fake_nccl().called("all_reduce"), 0);
}

TEST_F(NcclLifeCycle, DestroyingAGroupThatIsNotAtItsEndAbortsIt) {
  connect().reset();
  EXPECT_THAT(fake_nccl().calls(), ElementsAre("init", "abort", "aborted"));
}

TEST_F(NcclLifeCycle, MemoryIsDeregisteredBeforeItIsFreed) {
  const auto group = connect();
  group->allocate(kFromNccl);
  wait_until_called("ncclMemFree", 1);
  EXPECT_THAT(fake_nccl().calls(), ElementsAre("init", "ncclMemAlloc", "register", "deregister",
                                               "cudaMalloc", "cudaFree", "ncclMemFree"));
}

TEST_F(NcclLifeCycle, MemoryThatOutlivesItsGroupIsOnlyFreed) {
  {
    auto group = connect();
    const DeviceMemory memory = group->allocate(kFromNccl);
    EXPECT_EQ(memory.bytes(), kFromNccl);
    EXPECT_EQ(memory.kind(), MemoryKind::kDevice);
    group.reset();
  }
  wait_until_called("ncclMemFree", 1);
  EXPECT_THAT(fake_nccl().calls(), ElementsAre("init", "ncclMemAlloc", "register", "abort",
                                               "aborted", "cudaMalloc", "cudaFree", "ncclMemFree"));
}

TEST_F(NcclLifeCycle, WhatNcclCannotAllocateOrRegisterIsOrdinaryMemory) {
  fake_nccl().allocates = false;
  fake_nccl().registers = false;
  const auto group = connect();
  group->allocate(kFromNccl);
  wait_until_called("cudaFree", 1);
  EXPECT_THAT(fake_nccl().calls(), ElementsAre("init", "cudaMalloc", "cudaFree"));
  EXPECT_FALSE(group->async_error());
}

TEST_F(NcclLifeCycle, SmallMemoryIsOrdinary) {
  const auto group = connect();
  group->allocate(std::size_t{1} << 20);
  wait_until_called("cudaFree", 1);
  EXPECT_THAT(fake_nccl().calls(),
              ElementsAre("init", "cudaMalloc", "register", "deregister", "cudaFree"));
}

TEST_F(NcclLifeCycle, TheLibraryIsTheOneThatIsNamed) {
  NcclDeviceCommunicator::introduce(0, "/opt/libnccl.so.2");
  EXPECT_THAT(fake_nccl().calls(), ElementsAre("load /opt/libnccl.so.2"));
}

/// Communicators whose calls block, as NCCL_COMM_BLOCKING=1 asks.
class BlockingNccl : public NcclLifeCycle {
 protected:
  BlockingNccl() { ::setenv("NCCL_COMM_BLOCKING", "1", 1); }
  ~BlockingNccl() override { ::unsetenv("NCCL_COMM_BLOCKING"); }
};

TEST_F(BlockingNccl, CallsAreNotPolledAndTheEndIsTheSame) {
  fake_nccl().stuck = true;  // what would be in progress for ever
  const auto world = connect();
  const auto node = world->split(0);
  all_reduce(*node);
  all_reduce(*world);
  for (NcclDeviceCommunicator* group : {node.get(), world.get()}) {
    EXPECT_FALSE(group->async_error());
    while (group->finalize() == CommunicatorState::kFinalizing) std::this_thread::yield();
    EXPECT_EQ(group->finalize(), CommunicatorState::kFinalized);
  }
  EXPECT_THAT(fake_nccl().calls(),
              ElementsAre("blocking init", "blocking split", "all_reduce", "all_reduce", "finalize",
                          "destroy", "finalize", "destroy"));
}

TEST_F(BlockingNccl, ConnectingHasADeadlineAndBlocksNoOther) {
  fake_nccl().close_gate();
  EXPECT_EQ(code_of([&] { connect(kSoon); }), ErrorCode::kTimeout);
  NcclConnector connector(device_, kLate);
  auto connecting = connector.connect(connector.make_unique_id(), 0, 2);
  EXPECT_EQ(connecting->poll(), nullptr);
  fake_nccl().open_gate();
  std::unique_ptr<DeviceCommunicator> group;
  while (!group) group = connecting->poll();
  EXPECT_TRUE(group->abort(kLate));
  wait_until_called("aborted", 2);  // Also what connected after its deadline.
}

TEST_F(BlockingNccl, TheEndBlocksNobodyAndIsAbortedOnceItReturns) {
  const auto group = connect();
  fake_nccl().close_gate();
  EXPECT_EQ(group->finalize(), CommunicatorState::kFinalizing);
  wait_until_called("finalize", 1);
  EXPECT_EQ(group->finalize(), CommunicatorState::kFinalizing);
  EXPECT_FALSE(group->async_error());
  EXPECT_FALSE(group->abort(milliseconds(1)));
  EXPECT_EQ(fake_nccl().called("abort"), 0) << "another call runs";
  fake_nccl().open_gate();
  EXPECT_TRUE(group->abort(kLate));
  EXPECT_THAT(fake_nccl().calls(), ElementsAre("blocking init", "finalize", "abort", "aborted"));
}

TEST_F(NcclLifeCycle, AnotherMajorVersionIsAConfigurationError) {
  fake_nccl().version = NCCL_VERSION_CODE + 10000;
  EXPECT_EQ(code_of([&] { connect(); }), ErrorCode::kConfig);
}

TEST_F(NcclLifeCycle, RanksWithDifferentVersionsAreAConfigurationError) {
  const int older = NCCL_VERSION_CODE - 1;
  std::vector<std::string> two(2, NcclDeviceCommunicator::introduce(0));
  std::memcpy(two[1].data(), &older, sizeof(older));
  EXPECT_EQ(code_of([&] { NcclDeviceCommunicator::connect(two, 0, device_, kSoon); }),
            ErrorCode::kConfig);
  EXPECT_EQ(fake_nccl().called("init"), 0);
}

}  // namespace
}  // namespace kolo::test
