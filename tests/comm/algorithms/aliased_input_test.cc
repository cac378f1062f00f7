// The schedule of a bucket out of place is right where contributions and results are the same
// tensors, too: scaled contributions are read so, and written over.

#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "comm/algorithms/compile.h"
#include "comm/algorithms/registry.h"
#include "comm/verify/verifier.h"
#include "tests/support/compiled_schedules.h"
#include "tests/support/node_shapes.h"

namespace kolo {
namespace {

constexpr int kMostAliasedRanks = 6;

BucketLayout apart(std::size_t count) {
  return {.count = count, .placement = Placement::kUser, .out_of_place = true};
}

/// The same steps, whose contributions are in the tensors of the results.
std::vector<Schedule> aliased(std::vector<Schedule> schedules) {
  const auto alias = [](Range& range) {
    if (range.region == Region::kInput) range.region = Region::kUser;
  };
  for (Schedule& schedule : schedules) {
    schedule.layout.out_of_place = false;
    for (Step& step : schedule.steps) {
      alias(step.target);
      for (Range& source : step.sources) alias(source);
      for (Range& mirror : step.mirrors) alias(mirror);
    }
  }
  return schedules;
}

void expect_right_when_aliased(const std::vector<Schedule>& schedules, const ProcessGrid& grid,
                               const Goal& goal, const std::string& what) {
  const auto wrong = verify(aliased(schedules), grid, goal);
  EXPECT_EQ(wrong, std::nullopt) << what << ": " << *wrong;
}

void for_each_grid(const std::function<void(const ProcessGrid&, const std::string&)>& visit) {
  for (int ranks = 1; ranks <= kMostAliasedRanks; ++ranks) {
    test::for_each_node_shape(ranks, [&](const std::vector<int>& sizes) {
      visit(ProcessGrid::with_node_sizes(sizes), test::shape_text(sizes));
    });
  }
}

class AliasedAllReduce : public testing::TestWithParam<std::string> {};

TEST_P(AliasedAllReduce, IsRightAsOutOfPlace) {
  for_each_grid([&](const ProcessGrid& grid, const std::string& shape) {
    for (const std::size_t count : {std::size_t{1}, std::size_t{331}}) {
      // A bucket in one piece, and in chunks that go through a slot each.
      for (const std::size_t chunk : {std::size_t{256}, std::size_t{1} << 20}) {
        expect_right_when_aliased(test::compile_all(grid, apart(count),
                                                    {.algorithm = GetParam(),
                                                     .chunk_bytes = chunk,
                                                     .slot_bytes = chunk,
                                                     .cached_slot_bytes = chunk}),
                                  grid, Goal::all_reduce(grid.world_size()),
                                  shape + " " + std::to_string(count));
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Algorithms, AliasedAllReduce,
                         testing::Values("ring", "direct", "flat", "halving_doubling", "tree",
                                         "hierarchical:direct,direct", "hierarchical:direct,ring",
                                         "hierarchical:direct,halving_doubling",
                                         "hierarchical:direct,tree", "hierarchical:ring,ring"));

TEST(AliasedGoals, AreRightAsOutOfPlaceByEveryAlgorithm) {
  for_each_grid([&](const ProcessGrid& grid, const std::string& shape) {
    const auto ranks = static_cast<std::size_t>(grid.world_size());
    for (const std::size_t count : {std::size_t{1}, std::size_t{331}}) {
      for (const std::size_t slot : {std::size_t{256}, std::size_t{1} << 20}) {
        const std::vector<std::size_t> counts(ranks, count);
        for (const Goal& goal :
             {Goal::reduce(grid.world_size() - 1, grid.world_size(), count * ranks),
              Goal::reduce_scatter(counts)}) {
          const BucketLayout layout = apart(goal.count());
          for (const Algorithm* algorithm : all_algorithms()) {
            const CompileOptions options{.slot_bytes = slot, .cached_slot_bytes = slot};
            const CompileContext context{goal, layout, grid, options};
            if (!algorithm->serves(context)) continue;
            std::vector<Schedule> schedules;
            for (int rank = 0; rank < grid.world_size(); ++rank) {
              schedules.push_back(compile(rank, *algorithm, context));
            }
            expect_right_when_aliased(
                schedules, grid, goal,
                std::string(algorithm->name()) + " " + shape + " " + std::to_string(count));
          }
        }
      }
    }
  });
}

}  // namespace
}  // namespace kolo
