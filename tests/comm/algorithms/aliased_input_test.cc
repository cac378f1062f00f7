// The schedule of an out-of-place bucket must also be correct if contributions and results share
// their tensors: scaled contributions are read and overwritten in this manner.

#include <gtest/gtest.h>

#include "comm/algorithms/compile.h"
#include "comm/algorithms/registry.h"
#include "comm/verify/verifier.h"
#include "tests/support/node_shapes.h"

namespace kolo {
namespace {

constexpr int kMostAliasedRanks = 6;

BucketLayout apart(std::size_t count) {
  return {.count = count, .placement = Placement::kUser, .out_of_place = true};
}

/// Returns the same steps, with contributions in the tensors of the results.
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

TEST(AliasedInput, IsRightAsOutOfPlaceByEveryAlgorithm) {
  for (int ranks = 1; ranks <= kMostAliasedRanks; ++ranks) {
    test::for_each_node_shape(ranks, [&](const std::vector<int>& sizes) {
      const ProcessGrid grid = ProcessGrid::with_node_sizes(sizes);
      const auto size = static_cast<std::size_t>(ranks);
      for (const std::size_t count : {std::size_t{1}, std::size_t{331}}) {
        // A small slot cuts buckets into chunks; a large one holds them whole.
        for (const std::size_t slot : {std::size_t{256}, std::size_t{1} << 20}) {
          for (const CollectiveSpec& spec :
               {CollectiveSpec::all_reduce(ranks, count),
                CollectiveSpec::reduce(ranks - 1, ranks, count * size),
                CollectiveSpec::reduce_scatter(std::vector<std::size_t>(size, count))}) {
            const BucketLayout layout = apart(spec.count());
            for (const Algorithm* algorithm : all_algorithms()) {
              const CompileOptions options{
                  .chunk_bytes = slot, .slot_bytes = slot, .cached_slot_bytes = slot};
              const CompileContext context{spec, layout, grid, options};
              if (!algorithm->serves(context)) continue;
              std::vector<Schedule> schedules;
              for (int rank = 0; rank < ranks; ++rank) {
                schedules.push_back(compile(rank, *algorithm, context));
              }
              const auto wrong = verify(aliased(std::move(schedules)), grid, spec);
              EXPECT_EQ(wrong, std::nullopt)
                  << algorithm->name() << " on " << test::shape_text(sizes) << ", " << count;
            }
          }
        }
      }
    });
  }
}

}  // namespace
}  // namespace kolo
