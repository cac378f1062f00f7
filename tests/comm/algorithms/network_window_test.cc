// A window limits the bytes of a bucket in flight between nodes. It never changes the result.

#include <gtest/gtest.h>

#include <algorithm>

#include "comm/algorithms/compile.h"
#include "comm/verify/verifier.h"
#include "tests/support/compiled_schedules.h"
#include "tests/support/node_shapes.h"

namespace kolo {
namespace {

using test::compile_all;
constexpr std::size_t kChunkBytes = 256;
constexpr std::size_t kChunkCount = kChunkBytes / sizeof(float);

class NetworkWindow : public testing::TestWithParam<const char*> {};

TEST_P(NetworkWindow, KeepsEverySumRight) {
  for (const int ranks : {2, 3, 4, 5, 6}) {
    test::for_each_node_shape(ranks, [&](const std::vector<int>& sizes) {
      const ProcessGrid grid = ProcessGrid::with_node_sizes(sizes);
      for (const std::size_t chunks : std::initializer_list<std::size_t>{2, 3, 5}) {
        for (const Placement placement : {Placement::kInPlace, Placement::kStaged}) {
          const BucketLayout layout{.count = 9 * kChunkCount + 5, .placement = placement};
          const auto schedules = compile_all(grid, layout,
                                             {.algorithm = GetParam(),
                                              .chunk_bytes = kChunkBytes,
                                              .network_window = chunks * kChunkBytes});
          const auto wrong = verify(schedules, grid, CollectiveSpec::all_reduce(ranks));
          ASSERT_EQ(wrong, std::nullopt)
              << test::shape_text(sizes) << ", " << chunks << " chunks: " << *wrong;
        }
      }
    });
  }
}

TEST_P(NetworkWindow, LetsNoMoreThanItsChunksBegin) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes({1, 1, 1, 1});
  for (const std::size_t chunks : std::initializer_list<std::size_t>{2, 3, 5}) {
    const auto begun = [&](std::size_t bucket_chunks) {
      std::vector<std::ptrdiff_t> counts;
      for (const Schedule& schedule : compile_all(grid, {.count = bucket_chunks * kChunkCount},
                                                  {.algorithm = GetParam(),
                                                  .chunk_bytes = kChunkBytes,
                                                  .network_window = chunks * kChunkBytes})) {
        counts.push_back(std::count_if(
            schedule.steps.begin(), schedule.steps.end(),
            [](const Step& step) { return step.kind == StepKind::kSend && step.after.empty(); }));
      }
      return counts;
    };
    EXPECT_EQ(begun(20), begun(chunks)) << chunks;
    EXPECT_NE(begun(chunks), begun(chunks - 1)) << chunks;
  }
}

TEST_P(NetworkWindow, WorksInTheScratchMemoryOfItsChunks) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes({1, 1, 1, 1});
  const auto scratch = [&](std::size_t bucket_chunks) {
    std::vector<std::size_t> counts;
    for (const Schedule& schedule : compile_all(
             grid, {.count = bucket_chunks * kChunkCount},
             {.algorithm = GetParam(), .chunk_bytes = kChunkBytes, .network_window = 768})) {
      counts.push_back(schedule.scratch_count);
    }
    return counts;
  };
  EXPECT_EQ(scratch(20), scratch(3));
  EXPECT_NE(scratch(3), scratch(2));
}

TEST_P(NetworkWindow, HoldsTwoChunksOrMore) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes({1, 1});
  const BucketLayout layout{.count = 8 * kChunkCount};
  const CompileOptions narrow{
      .algorithm = GetParam(), .chunk_bytes = 8 * kChunkBytes, .network_window = 2 * kChunkBytes};
  const CompileOptions fitting{
      .algorithm = GetParam(), .chunk_bytes = kChunkBytes, .network_window = 2 * kChunkBytes};
  EXPECT_EQ(test::compile_all_reduce(0, layout, grid, narrow).steps.size(),
            test::compile_all_reduce(0, layout, grid, fitting).steps.size());
}

INSTANTIATE_TEST_SUITE_P(Algorithms, NetworkWindow,
                         testing::Values("ring", "direct", "halving_doubling",
                                         "hierarchical:direct,direct", "hierarchical:direct,ring"),
                         [](const auto& each) { return test::test_name(each.param); });

}  // namespace
}  // namespace kolo
