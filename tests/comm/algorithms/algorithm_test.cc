#include <gtest/gtest.h>

#include <algorithm>

#include "comm/algorithms/all_reduce/all_reduce.h"
#include "comm/algorithms/chunking.h"
#include "comm/algorithms/compile.h"
#include "comm/base/check.h"
#include "comm/verify/verifier.h"
#include "tests/support/compiled_schedules.h"
#include "tests/support/node_shapes.h"

namespace kolo {
namespace {

// The number of shapes grows fast: up to 12 ranks there are nearly three times as many as up to 9.
constexpr int kMostRanks = 9;

/// Compiles the schedules of all ranks and verifies them.
void expect_correct(const ProcessGrid& grid, const BucketLayout& layout,
                    const CompileOptions& options, const std::string& what) {
  const auto wrong = verify(test::compile_all(grid, layout, options), grid,
                            CollectiveSpec::all_reduce(grid.world_size()));
  ASSERT_EQ(wrong, std::nullopt) << what << " count " << layout.count << ": " << *wrong;
}

/// Verifies the schedules also with contributions and results in different tensors.
void expect_correct_in_any_place(const ProcessGrid& grid, const BucketLayout& layout,
                                 const CompileOptions& options, const std::string& what) {
  expect_correct(grid, layout, options, what);
  if (layout.placement == Placement::kInPlace) return;
  BucketLayout apart = layout;
  apart.out_of_place = true;
  expect_correct(grid, apart, options, what + " out of place");
}

/// Placement of contributions and results.
struct Place {
  Placement placement;
  bool out_of_place = false;
};
constexpr Place kPlaces[] = {{Placement::kInPlace},
                             {Placement::kStaged},
                             {Placement::kUser},
                             {Placement::kStaged, true},
                             {Placement::kUser, true}};
// The lower count is less than the number of ranks. The odd count does not divide evenly.
constexpr std::size_t kShapeCounts[] = {1, 331};

/// Up to this number of ranks, each shape is tried with both counts in all places. With more ranks
/// there are 70 shapes: each has one place, and every third shape has the lower count.
constexpr int kMostRanksEverywhere = 6;
bool takes(std::size_t shape, std::size_t which, std::size_t place) {
  return place == shape % std::size(kPlaces) && which == (shape % 3 == 0 ? 0 : 1);
}

class AlgorithmShapes : public testing::TestWithParam<std::string> {};

TEST_P(AlgorithmShapes, SumEveryElementOnce) {
  const CompileOptions options{.algorithm = GetParam(), .chunk_bytes = 4096};
  std::size_t shape = 0;
  test::for_each_node_shape_up_to(kMostRanks, [&](const std::vector<int>& sizes) {
    const ProcessGrid grid = ProcessGrid::with_node_sizes(sizes);
    ++shape;
    for (std::size_t i = 0; i < std::size(kShapeCounts); ++i) {
      for (std::size_t place = 0; place < std::size(kPlaces); ++place) {
        if (grid.world_size() > kMostRanksEverywhere && !takes(shape, i, place)) continue;
        const BucketLayout layout{.count = kShapeCounts[i],
                                  .placement = kPlaces[place].placement,
                                  .out_of_place = kPlaces[place].out_of_place};
        expect_correct(grid, layout, options,
                       test::shape_text(sizes) + " place " + std::to_string(place));
        if (HasFatalFailure()) return;
      }
    }
  });
}

TEST_P(AlgorithmShapes, SumInChunksInPlaceAndOutOfOrderNodes) {
  const CompileOptions options{.algorithm = GetParam(), .chunk_bytes = 256};
  for (const std::vector<std::string>& nodes : {std::vector<std::string>{"a", "b", "a", "b"},
                                                {"a", "b", "b", "c", "a", "a"},
                                                {"a", "a"},
                                                {"b", "a", "c"}}) {
    const ProcessGrid grid(nodes);
    for (const std::size_t count : std::initializer_list<std::size_t>{0, 2, 3, 64, 257, 1000}) {
      for (DType dtype : {DType::kFloat32, DType::kUInt8}) {
        for (Placement placement : {Placement::kInPlace, Placement::kStaged, Placement::kUser}) {
          expect_correct_in_any_place(
              grid, {.count = count, .dtype = dtype, .placement = placement}, options, GetParam());
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Algorithms, AlgorithmShapes,
                         testing::ValuesIn(test::all_reduces_in(MemoryKind::kHost)),
                         [](const auto& each) { return test::test_name(each.param); });

// The sum of a node's float16 numbers may exceed their range, so it is divided before it is
// rounded.
TEST(Averages, OfFloat16AreDividedBeforeNodesExchangeThem) {
  const CompileOptions options{.algorithm = "hierarchical:direct,direct", .chunk_bytes = 256};
  for (int ranks = 1; ranks <= kMostRanksEverywhere; ++ranks) {
    test::for_each_node_shape(ranks, [&](const std::vector<int>& sizes) {
      const ProcessGrid grid = ProcessGrid::with_node_sizes(sizes);
      BucketLayout layout{.count = 331, .dtype = DType::kFloat16, .op = ReduceOp::kAverage};
      for (const Place& place : kPlaces) {
        layout.placement = place.placement;
        layout.out_of_place = place.out_of_place;
        expect_correct(grid, layout, options, test::shape_text(sizes));
      }
      for (const Schedule& schedule : test::compile_all(grid, layout, options)) {
        const bool sends = has_messages(schedule) && grid.largest_node() > 1;
        const auto first = std::ranges::find(schedule.steps, StepKind::kReduce, &Step::kind);
        EXPECT_TRUE(!sends || first->finishes) << test::shape_text(sizes);
      }
    });
  }
}

TEST(Packing, BeginsWithWhatIsSentFirst) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes({1, 1, 1, 1});
  for (const char* algorithm : {"direct", "ring"}) {
    for (int rank = 0; rank < grid.world_size(); ++rank) {
      const Schedule schedule = test::compile_all_reduce(
          rank, {.count = 1024, .placement = Placement::kUser}, grid, {.algorithm = algorithm});
      const auto first = [&](StepKind kind) {
        return *std::ranges::find(schedule.steps, kind, &Step::kind);
      };
      EXPECT_EQ(first(StepKind::kPack).target, first(StepKind::kSend).sources.front())
          << algorithm << ", rank " << rank;
    }
  }
}

// Windows have one slot, two, and more than there are chunks. Chunks do not divide evenly.
TEST(WindowedDirect, SumsEveryElementOnceForAnyWindowAndSlot) {
  for (const int ranks : {1, 2, 3, 5, 8}) {
    const ProcessGrid grid = ProcessGrid::with_node_sizes({ranks});
    for (const std::size_t window : std::initializer_list<std::size_t>{1, 2, 3, 100}) {
      for (const std::size_t slot_bytes :
           std::initializer_list<std::size_t>{64, 192, 1000, 1 << 20}) {
        for (const std::size_t count : std::initializer_list<std::size_t>{0, 1, 15, 17, 331}) {
          for (Placement placement : {Placement::kStaged, Placement::kUser}) {
            expect_correct_in_any_place(
                grid, {.count = count, .placement = placement},
                {.algorithm = "direct", .slot_bytes = slot_bytes, .window = window},
                std::to_string(ranks) + " ranks, window " + std::to_string(window) + " of " +
                    std::to_string(slot_bytes) + " bytes,");
          }
        }
      }
    }
  }
}

TEST(WindowedDirect, NeedsNoMoreArenaThanItsWindow) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes({4});
  const CompileOptions options{.algorithm = "direct", .slot_bytes = 4096, .window = 3};
  for (Placement placement : {Placement::kStaged, Placement::kUser}) {
    const ArenaNeeds needs = arena_needs(
        test::compile_all_reduce(1, {.count = 1 << 20, .placement = placement}, grid, options));
    EXPECT_EQ(needs.bucket_bytes, 0u);
    EXPECT_EQ(needs.staging_bytes, 3u * 4096);
  }
}

// The core's cache has room either for the tensors of a bucket or for long slots.
TEST(WindowedDirect, HasSmallerSlotsForABucketThatStaysInTheCache) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes({2});
  const CompileOptions options{.algorithm = "direct",
                               .slot_bytes = 4096,
                               .cached_slot_bytes = 1024,
                               .cached_bytes = 1 << 16};
  const auto staging = [&](std::size_t bytes) {
    const BucketLayout layout{.count = bytes / sizeof(float), .placement = Placement::kUser};
    return arena_needs(test::compile_all_reduce(0, layout, grid, options)).staging_bytes;
  };
  EXPECT_EQ(staging(1 << 16), 2u * 1024);
  EXPECT_EQ(staging(1 << 17), 2u * 4096);
}

TEST(Flat, StagesTwiceAndNeedsNoBucketUnlessInPlace) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes({2, 1});
  for (Placement placement : {Placement::kInPlace, Placement::kStaged, Placement::kUser}) {
    const ArenaNeeds needs = arena_needs(test::compile_all_reduce(
        1, {.count = 100, .placement = placement}, grid, {.algorithm = "flat"}));
    EXPECT_EQ(needs.bucket_bytes, placement == Placement::kInPlace ? 448u : 0u);
    EXPECT_EQ(needs.turn_bytes, 448u);
    EXPECT_EQ(needs.staging_bytes, 896u);
  }
}

TEST(Eager, IsWhatANodeSharesOrIsSmall) {
  const ProcessGrid node = ProcessGrid::with_node_sizes({2});
  const ProcessGrid nodes = ProcessGrid::with_node_sizes({2, 1});
  const CompileOptions options{.eager_bytes = 4096};
  const auto is_eager = [&](const ProcessGrid& grid, std::size_t count) {
    const bool eager = test::compile_all_reduce(0, {.count = count}, grid, options).eager;
    const CollectiveSpec broadcast = CollectiveSpec::broadcast(1, grid.world_size(), count);
    const BucketLayout apart{.count = count, .placement = Placement::kUser};
    EXPECT_EQ(compile(0, broadcast, apart, grid, options).eager, eager);
    return eager;
  };
  EXPECT_TRUE(is_eager(node, 1 << 20));
  EXPECT_TRUE(is_eager(nodes, 1024));
  EXPECT_FALSE(is_eager(nodes, 1025));
  const BucketLayout device{.count = 1024, .memory = MemoryKind::kDevice};
  EXPECT_FALSE(test::compile_all_reduce(0, device, node, options).eager);
}

// Compares the busiest rank's sent bytes with the formula in algorithm.h. Counts divide evenly.
TEST(AlgorithmCost, BytesPerRankEqualTheFormula) {
  constexpr std::size_t kCount = 16 * 16 * 8;
  constexpr std::size_t kBytes = kCount * sizeof(float);
  const auto most_bytes = [&](const std::string& algorithm, int ranks) {
    const ProcessGrid grid =
        ProcessGrid::with_node_sizes(std::vector<int>(static_cast<std::size_t>(ranks), 1));
    std::size_t most = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const Schedule schedule =
          test::compile_all_reduce(rank, {.count = kCount}, grid, {.algorithm = algorithm});
      most = std::max(most, traffic(schedule, [](int) { return true; }).bytes);
    }
    return most;
  };
  for (int ranks : {2, 4, 8, 16}) {
    const auto n = static_cast<std::size_t>(ranks);
    EXPECT_EQ(most_bytes("ring", ranks), 2 * (n - 1) * kBytes / n) << ranks;
    EXPECT_EQ(most_bytes("direct", ranks), 2 * (n - 1) * kBytes / n) << ranks;
    EXPECT_EQ(most_bytes("halving_doubling", ranks), 2 * (n - 1) * kBytes / n) << ranks;
  }
}

// Between H nodes of L ranks, a hierarchical ring sends 2(H-1)/H of each rank's 1/L part. Inside
// nodes it sends nothing.
TEST(AlgorithmCost, HierarchySendsOnlyItsPartBetweenNodes) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes({4, 4});
  const Schedule schedule =
      test::compile_all_reduce(5, {.count = 4096}, grid, {.algorithm = "hierarchical:direct,ring"});
  EXPECT_EQ(traffic(schedule, [](int) { return true; }).bytes, 4096 * sizeof(float) / 4);
  EXPECT_EQ(traffic(schedule, [&](int peer) { return grid.same_node(5, peer); }).bytes, 0);
}

TEST(Choose, KeepsSixteenBitSumsInOnePlace) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes({2, 2});
  const BucketLayout half{.count = 1000, .dtype = DType::kFloat16};
  EXPECT_THROW(test::taken(half, grid, {.algorithm = "ring"}), KoloError);
  EXPECT_EQ(test::taken(half, grid, {.algorithm = "hierarchical"}), "hierarchical:direct,direct");
  EXPECT_EQ(test::taken(half, grid, {.algorithm = "direct"}), "direct");
  EXPECT_EQ(test::taken(half, grid, {.algorithm = "flat"}), "flat");
  for (std::size_t count = 1; count < (std::size_t{1} << 26); count *= 4) {
    const std::string chosen = test::taken({.count = count, .dtype = DType::kFloat16}, grid, {});
    EXPECT_TRUE(find_all_reduce(chosen).sums_in_one_place()) << chosen;
  }
}

TEST(PartOf, CoversExactlyInOrderAndAligned) {
  for (const std::size_t offset : std::initializer_list<std::size_t>{0, 16, 5, 33}) {
    for (const std::size_t count :
         std::initializer_list<std::size_t>{0, 1, 15, 16, 17, 100, 1024, 1031}) {
      for (const std::size_t parts : std::initializer_list<std::size_t>{1, 2, 3, 7, 16}) {
        std::size_t at = offset;
        for (std::size_t i = 0; i < parts; ++i) {
          const Extent part = part_of({offset, count}, parts, i, DType::kFloat32);
          EXPECT_EQ(part.offset, at);
          if (part.count > 0 && i > 0) {
            EXPECT_EQ(part.offset % 16, 0u) << offset << " " << count << " " << parts;
          }
          at = part.end();
        }
        EXPECT_EQ(at, offset + count);
      }
    }
  }
}

}  // namespace
}  // namespace kolo
