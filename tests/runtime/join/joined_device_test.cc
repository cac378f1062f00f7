// Tests how a joined rank stands in for operations on device memory.

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/runtime/join/joined_job.h"

namespace kolo::joined {
namespace {

TEST(JoinedDevices, KeepMemoryFromOneOperationToTheNext) {
  EngineJob job(ProcessGrid::with_node_sizes({2}), options(), 1,
                test::devices_for(MemoryKind::kDevice));
  const auto ticket = join(job, 1);
  std::vector<float> data(2000);
  std::size_t allocations = 0;
  for (int use = 0; use < 5; ++use) {
    const std::size_t count = use % 2 == 0 ? 2000 : 10;
    std::ranges::fill(data, 1.0f);
    job.finish({job.submit(0, {.kind = OperationKind::kAllReduce,
                               .name = "x" + std::to_string(count),
                               .tensors = test::in_place({data.data(), count, DType::kFloat32}),
                               .op = ReduceOp::kMin})});
    EXPECT_EQ(data[count - 1], 1.0f);
    job.poll(200);  // rank 1 has also performed its steps
    const std::size_t now = job.device(1).allocation_counts().allocations;
    if (use > 1) {
      EXPECT_EQ(now, allocations) << "use " << use;
    }
    allocations = now;
  }
}

}  // namespace
}  // namespace kolo::joined
