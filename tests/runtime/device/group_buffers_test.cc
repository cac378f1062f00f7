// Operations on device memory in groups, through pinned memory, for any interleaving.

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tests/runtime/device/group_buffers.h"

namespace kolo {
namespace {

TEST(DeviceGroups, HaveAllCollectives) {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    test::expect_group_collectives(
        [seed](int rank) {
          return std::make_unique<SeededHostDevice>(seed * 10 + static_cast<std::uint64_t>(rank));
        },
        seed);
  }
}

TEST(DeviceGroups, SayThatThereIsNoDevice) {
  test::GroupJob job(ProcessGrid::with_node_sizes({2}), 1);
  const auto members = job.found_all({0, 1});
  std::vector<float> data(8);
  std::vector<std::shared_ptr<Operation>> operations;
  for (const auto& member : members) {
    operations.push_back(test::GroupJob::submit(
        member->engine(),
        {.kind = OperationKind::kAllReduce,
         .name = "x",
         .buffer = {.data = data.data(), .count = 8, .memory = MemoryKind::kDevice}}));
  }
  job.finish(operations);
  for (const auto& operation : operations) {
    EXPECT_NE(test::error_of(*operation).find("set the option `device`"), std::string::npos);
  }
}

}  // namespace
}  // namespace kolo
