#include <gtest/gtest.h>

#include <algorithm>

#include "comm/algorithms/compile.h"
#include "comm/algorithms/registry.h"
#include "tests/support/allocations.h"

namespace kolo {
namespace {

/// Returns the most memory that a rank holds while it plans, by collective, dtype and algorithm.
/// Rank 0 is the root, if there is one; the last rank is on another node.
std::map<std::string, std::size_t> planning_bytes(int ranks, int ranks_of_node) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes(
      std::vector<int>(static_cast<std::size_t>(ranks / ranks_of_node), ranks_of_node));
  CompileOptions options;
  // One slot holds all bytes, so that twice the ranks do not mean more rounds or shares.
  options.slot_bytes = options.cached_slot_bytes = std::size_t{1} << 30;
  std::map<std::string, std::size_t> bytes;
  for (const CollectiveKind kind : kAllCollectiveKinds) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      // 16-bit floats differ from 32-bit floats only in sums.
      const bool sums = reduces(kind) && kind != CollectiveKind::kAllReduce;
      if (dtype == DType::kBFloat16 && !sums) continue;
      const std::size_t count = kWireAlignment / size_of(dtype) * static_cast<std::size_t>(ranks);
      for (const Algorithm* algorithm : all_algorithms()) {
        for (const int rank : {0, ranks - 1}) {
          // Without a root, all ranks need equal memory.
          if (rank > 0 && !has_root(kind)) continue;
          const test::AllocationCounter counter;
          const CollectiveSpec spec = even_spec(kind, ranks, count);
          const BucketLayout layout{.count = spec.count(),
                                    .dtype = dtype,
                                    .placement = Placement::kUser,
                                    .out_of_place = has_pairs(kind)};
          const CompileContext context{spec, layout, grid, options};
          if (!algorithm->serves(context)) continue;
          const Schedule schedule = compile(rank, *algorithm, context);
          std::string what(to_string(kind));
          what.append(" ").append(to_string(dtype)).append(" by ").append(algorithm->name());
          bytes[what] = std::max(bytes[what], counter.most_held_bytes());
        }
      }
    }
  }
  return bytes;
}

/// Expects that twice the ranks take about twice the memory, not four times: less than half way
/// between the two. Memory that does not grow only lowers the ratio.
void expect_linear(int ranks, int ranks_of_node) {
  const auto of_half = planning_bytes(ranks / 2, ranks_of_node);
  for (const auto& [what, bytes] : planning_bytes(ranks, ranks_of_node)) {
    EXPECT_LT(bytes, 3 * of_half.at(what)) << what;
  }
}

TEST(PlanningMemory, GrowsLikeTheNumberOfRanks) { expect_linear(512, 8); }

TEST(PlanningMemory, GrowsLikeTheNumberOfNodes) { expect_linear(512, 1); }

}  // namespace
}  // namespace kolo
