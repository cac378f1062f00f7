// Tests operations on device memory in groups, for any interleaving. They use collectives of the
// device, connected when a group first needs them, or pinned memory.

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/runtime/device/group_buffers.h"
#include "tests/support/calls/sized_tensor.h"

namespace kolo {
namespace {

using test::GroupJob;
using test::HostConnections;

GroupJob::MakeDevice seeded_devices(std::uint64_t seed) {
  return [seed](int rank) {
    return std::make_unique<SeededHostDevice>(seed * 10 + static_cast<std::uint64_t>(rank));
  };
}

TEST(DeviceCommunicators, HaveAllCollectives) {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    test::expect_group_collectives(seeded_devices(seed), seed);
  }
}

TEST(DeviceCommunicators, ConnectCollectivesOfTheirOwnWhenTheyNeedThem) {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    HostConnections connections;
    test::expect_group_collectives(seeded_devices(seed), seed, &connections);
    EXPECT_EQ(connections.connected(), 1U);
  }
}

/// A job of three ranks of one node, whose devices have collectives.
class ConnectedGroups {
 public:
  explicit ConnectedGroups(std::uint64_t seed)
      : job(ProcessGrid::with_node_sizes({3}), seed, std::size_t{4} << 20,
            {.arena_bytes = GroupJob::kJobArena}, seeded_devices(seed), &connections) {}

  /// Begins an all-reduce of ones on one member.
  std::shared_ptr<Operation> begin(GroupEngine& member, std::vector<float>& data) {
    data.assign(100, 1);
    Operation operation{
        .kind = OperationKind::kAllReduce, .name = "x", .tensors = test::in_place(data)};
    const auto rank = static_cast<std::size_t>(member.rank());
    moved.move(operation, member.rank(), static_cast<int>(member.ranks().size()),
               member.ranks()[rank]);
    return GroupJob::submit(member.engine(), operation);
  }

  HostConnections connections;
  GroupJob job;
  test::GroupBuffers moved{job};
};

TEST(DeviceCommunicators, OverlapAndConnectInAnyOrder) {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    ConnectedGroups all(seed);
    const auto first = all.job.create_all({0, 1}, "first"), second = all.job.create_all({1, 0, 2});
    EXPECT_EQ(all.connections.connected(), 0U);
    std::vector<std::vector<float>> data(5);
    // Ranks 0 and 1 begin with different groups.
    std::vector<std::shared_ptr<Operation>> operations;
    operations.push_back(all.begin(*first[0], data[0]));
    operations.push_back(all.begin(*second[0], data[1]));
    operations.push_back(all.begin(*second[1], data[2]));
    operations.push_back(all.begin(*first[1], data[3]));
    operations.push_back(all.begin(*second[2], data[4]));
    all.job.finish(operations);
    all.moved.bring_back();
    for (const auto& operation : operations) EXPECT_EQ(test::error_of(*operation), "");
    EXPECT_EQ(all.connections.connected(), 2U);
    for (const std::size_t i : {0U, 3U}) EXPECT_EQ(data[i], std::vector<float>(100, 2));
    for (const std::size_t i : {1U, 2U, 4U}) EXPECT_EQ(data[i], std::vector<float>(100, 3));
  }
}

TEST(DeviceCommunicators, EndTheirCollectivesWhenTheyAreReleased) {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    ConnectedGroups all(seed);
    for (int time = 0; time < 3; ++time) {
      const auto members = all.job.create_all({2, 0});
      std::vector<std::vector<float>> data(2);
      std::vector<std::shared_ptr<Operation>> operations{all.begin(*members[0], data[0]),
                                                         all.begin(*members[1], data[1])};
      all.job.finish(operations);
      all.moved.bring_back();
      EXPECT_EQ(data[1], std::vector<float>(100, 2));
      operations.clear();
      for (const auto& member : members) {
        operations.push_back(GroupJob::submit(member->engine(), {.kind = OperationKind::kClose}));
      }
      all.job.finish(operations);
      all.job.run_until([&] {
        return std::ranges::all_of(members,
                                   [](const auto& member) { return member->engine().ended(); });
      });
    }
    EXPECT_EQ(all.connections.connected(), 3U);
  }
}

TEST(DeviceCommunicators, FailWithTheirNameAndLeaveOthersAlone) {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    ConnectedGroups all(seed);
    const auto lost = all.job.create_all({0, 1}, "lost"),
               kept = all.job.create_all({1, 0, 2}, "kept");
    std::vector<std::vector<float>> data(5);
    const auto waiting = all.begin(*lost[0], data[0]);
    // The other member aborts while the first member's collective or connection is open.
    lost[1]->engine().abort({.code = ErrorCode::kTimeout, .rank = 1, .what = "waited too long"});
    all.job.finish({waiting}, std::chrono::milliseconds(50));
    EXPECT_NE(test::error_of(*waiting).find("waited too long"), std::string::npos);
    std::vector<std::shared_ptr<Operation>> operations;
    for (std::size_t i = 0; i < 3; ++i) operations.push_back(all.begin(*kept[i], data[1 + i]));
    all.job.finish(operations);
    for (const auto& operation : operations) EXPECT_EQ(test::error_of(*operation), "");
    all.moved.bring_back();
    EXPECT_EQ(data[1], std::vector<float>(100, 3));
  }
}

TEST(DeviceCommunicators, FailTogetherIfTheirCollectivesDoNotConnect) {
  ConnectedGroups all(3);
  const auto members = all.job.create_all({0, 2}, "apart");
  all.connections.fail();
  std::vector<std::vector<float>> data(2);
  const std::vector<std::shared_ptr<Operation>> operations{all.begin(*members[0], data[0]),
                                                           all.begin(*members[1], data[1])};
  all.job.finish(operations, std::chrono::milliseconds(50));
  const std::string error = test::error_of(*operations[0]);
  EXPECT_NE(error.find("no rank was found"), std::string::npos) << error;
  EXPECT_EQ(test::error_of(*operations[1]), error);
  EXPECT_FALSE(all.job.engine(0).failure());
}

TEST(DeviceCommunicators, SayThatThereIsNoDevice) {
  GroupJob job(ProcessGrid::with_node_sizes({2}), 1);
  const auto members = job.create_all({0, 1});
  std::vector<float> data(8);
  std::vector<std::shared_ptr<Operation>> operations;
  for (const auto& member : members) {
    operations.push_back(
        GroupJob::submit(member->engine(), {.kind = OperationKind::kAllReduce,
                                            .name = "x",
                                            .memory = MemoryKind::kDevice,
                                            .tensors = test::in_place({data.data(), 8})}));
  }
  job.finish(operations);
  for (const auto& operation : operations) {
    EXPECT_NE(test::error_of(*operation).find("set the option `device`"), std::string::npos);
  }
}

}  // namespace
}  // namespace kolo
