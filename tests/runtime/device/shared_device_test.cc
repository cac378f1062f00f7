// Tests what several groups of ranks share on one device: its hardware queues, and the
// communicators that move the buckets. Memory of another device is refused.

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/calls/operation_calls.h"
#include "tests/support/engine_job.h"
#include "tests/support/faulty_communicator.h"
#include "tests/support/group_job.h"

namespace kolo::test {
namespace {

constexpr std::size_t kGroups = 7;
constexpr std::size_t kSize = 50;

/// Sums in several groups of the same two ranks on devices with `queues` queues. The first rank of
/// a group launches first, and that is rank 0 in every other group: so the ranks launch in
/// different orders. Throws std::runtime_error if that hangs.
void sum_in_groups(std::uint64_t seed, std::size_t queues, HostConnections& connections) {
  GroupJob job(
      ProcessGrid::with_node_sizes({2}), seed, std::size_t{4} << 20,
      {.arena_bytes = GroupJob::kJobArena},
      [&](int rank) {
        return std::make_unique<SeededHostDevice>(seed * 2 + static_cast<std::uint64_t>(rank),
                                                  queues);
      },
      &connections);
  std::vector<std::vector<std::shared_ptr<GroupEngine>>> groups;
  for (std::size_t i = 0; i < kGroups; ++i) {
    const std::vector<int> ranks = i % 2 == 0 ? std::vector{0, 1} : std::vector{1, 0};
    groups.push_back(job.create_all(ranks, "g" + std::to_string(i)));
  }
  for (int time = 0; time < 3; ++time) {  // The communicators connect at the first time.
    std::vector<std::vector<float>> data(2 * kGroups, std::vector<float>(kSize, 1));
    std::vector<std::shared_ptr<Operation>> operations;
    for (std::size_t i = 0; i < 2 * kGroups; ++i) {
      OperationPool pool;
      const BufferView buffer{data[i].data(), kSize, DType::kFloat32, MemoryKind::kDevice};
      auto operation = OperationCalls(pool, static_cast<int>(i % 2), 2)
                           .make(OperationKind::kAllReduce, "x", buffer);
      groups[i / 2][i % 2]->engine().submit(operation);
      operations.push_back(std::move(operation));
    }
    job.finish(operations);
    for (const auto& operation : operations) EXPECT_EQ(error_of(*operation), "");
    for (const auto& sums : data) EXPECT_EQ(sums, std::vector<float>(kSize, 2));
  }
}

TEST(SharedDevice, GroupsLaunchInOppositeOrders) {
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    HostConnections connections;
    EXPECT_NO_THROW(sum_in_groups(seed, 32, connections));
  }
}

TEST(SharedDevice, GroupsWhoseLaunchesWaitForPeersLaunchInOppositeOrders) {
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    HostConnections connections;
    connections.launch_together();
    EXPECT_NO_THROW(sum_in_groups(seed, 32, connections));
  }
}

TEST(SharedDevice, WithFewQueuesTheyHang) {
  HostConnections connections;
  EXPECT_THROW(sum_in_groups(1, 2, connections), std::runtime_error);
}

/// Returns the number of buckets that rank 0 allocates with its node's group and with the world's.
std::pair<std::uint64_t, std::uint64_t> allocations_of(const std::string& algorithm) {
  FaultyCommunicator *node = nullptr, *world = nullptr;
  const JobDevices devices{
      .wrap = [&](int rank, const std::string& members, std::unique_ptr<DeviceCommunicator> group) {
        if (rank != 0) return group;
        auto counted = std::make_unique<FaultyCommunicator>(std::move(group), FaultPlan{});
        (members == "world" ? world : node) = counted.get();
        return std::unique_ptr<DeviceCommunicator>(std::move(counted));
      }};
  EngineJob job(ProcessGrid::with_node_sizes({2, 2}),
                {.algorithm = algorithm, .device_fusion_bytes = 0}, 1, devices);
  std::vector<std::shared_ptr<GradientSetState>> sets;
  for (int rank = 0; rank < job.world_size(); ++rank) {
    sets.push_back(std::make_shared<GradientSetState>(
        "model",
        std::vector<GradientSpec>{{.name = "w", .shape = {kSize}, .memory = MemoryKind::kDevice}},
        GradientOptions{}));
    job.engine(rank).submit(sets.back());
  }
  job.run_until_registered(sets);
  return {node->allocations(), world->allocations()};
}

TEST(SharedDevice, MemoryOfAnotherIsRefusedByName) {
  SeededHostDevice device(1);
  std::vector<float> own(4), foreign(4);
  device.mark_foreign(foreign.data(), "memory of host:1");
  const auto at = [](std::vector<float>& data) {
    return BufferView{data.data(), data.size(), DType::kFloat32, MemoryKind::kDevice};
  };
  OperationPool pool;
  const OperationCalls calls(pool, 0, 1, &device);
  EXPECT_NO_THROW(calls.make(OperationKind::kAllReduce, "x", at(own)));
  EXPECT_NO_THROW(calls.make(OperationKind::kAllReduce, "x", foreign)) << "it is host memory";
  try {
    calls.make(OperationKind::kAllReduce, "x", Tensor(at(own), at(foreign)));
    FAIL() << "no error";
  } catch (const UsageError& error) {
    EXPECT_EQ(error.error().what,
              "'x': the result is in memory of host:1, where that of host, seed 1 is expected");
  }
}

TEST(SharedDevice, ABucketIsRegisteredWithTheGroupThatMovesIt) {
  EXPECT_EQ(allocations_of("native"), std::pair(std::uint64_t{0}, std::uint64_t{1}));
  EXPECT_EQ(allocations_of("hierarchical:native,ring"),
            std::pair(std::uint64_t{1}, std::uint64_t{0}));
}

}  // namespace
}  // namespace kolo::test
