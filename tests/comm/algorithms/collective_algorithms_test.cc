#include "comm/algorithms/compile.h"
#include "comm/algorithms/registry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <random>

#include "comm/verify/verifier.h"
#include "tests/support/compiled_schedules.h"
#include "tests/support/node_shapes.h"

namespace kolo {
namespace {

constexpr int kMostSpecRanks = 9;
/// Up to this number of ranks, every root, both counts and both places are tried on each shape.
/// With more ranks there are 80 shapes, and each has one combination.
constexpr int kMostRanksOfAll = 5;

/// Removes the costs that limit which contributions are exposed.
void expose_all(CompileOptions& options) {
  options.link_costs.memory.latency_us = 0;
  options.link_costs.private_read_us = 0;
}

std::size_t sum(const std::vector<std::size_t>& counts) {
  std::size_t total = 0;
  for (const std::size_t count : counts) total += count;
  return total;
}

/// Makes a spec. `counts` are the elements of each rank's part. In an all-to-all, rank s has for
/// rank r as many elements as the smaller of their counts, or one less.
CollectiveSpec spec_of(CollectiveKind kind, const std::vector<std::size_t>& counts, int root) {
  const int ranks = static_cast<int>(counts.size());
  if (!has_parts(kind)) return CollectiveSpec::of(kind, root, ranks, {1, sum(counts)});
  if (!has_pairs(kind)) return CollectiveSpec::of(kind, root, ranks, counts);
  std::vector<std::size_t> all;
  for (std::size_t s = 0; s < counts.size(); ++s) {
    for (std::size_t r = 0; r < counts.size(); ++r) {
      const std::size_t count = std::min(counts[s], counts[r]);
      all.push_back(count > 1 && s < r ? count - 1 : count);
    }
  }
  return CollectiveSpec::of(kind, root, ranks, all);
}

struct Case {
  CollectiveKind kind;
  const Algorithm* algorithm;
  MemoryKind memory;
  /// With kStaged, elements are cast to bfloat16 in host memory, and packed on a device.
  Placement placement = Placement::kUser;
};

struct SpecPlace {
  MemoryKind memory;
  Placement placement;
};
constexpr SpecPlace kSpecPlaces[] = {{MemoryKind::kHost, Placement::kUser},
                                     {MemoryKind::kHost, Placement::kStaged},
                                     {MemoryKind::kDevice, Placement::kUser},
                                     {MemoryKind::kDevice, Placement::kStaged}};

/// Returns each algorithm with each collective that it supports on some nodes.
std::vector<Case> cases() {
  std::vector<Case> all;
  const std::vector<std::size_t> counts(6, 10);
  const ProcessGrid uneven = ProcessGrid::with_node_sizes({1, 2, 1, 2});
  const ProcessGrid even = ProcessGrid::with_node_sizes({2, 2, 2});
  for (const CollectiveKind kind : kAllCollectiveKinds) {
    if (kind == CollectiveKind::kAllReduce) continue;
    const CollectiveSpec spec = spec_of(kind, counts, 0);
    for (const auto& [memory, placement] : kSpecPlaces) {
      const BucketLayout layout{.count = spec.count(), .placement = placement, .memory = memory};
      for (const Algorithm* algorithm : all_algorithms()) {
        const CompileOptions options;
        if (algorithm->serves({spec, layout, uneven, options}) ||
            algorithm->serves({spec, layout, even, options})) {
          all.push_back({kind, algorithm, memory, placement});
        }
      }
    }
  }
  return all;
}

/// Verifies the schedules, if the algorithm serves the spec.
void expect_reached(const CollectiveSpec& spec, const ProcessGrid& grid, const BucketLayout& layout,
                    const CompileOptions& options, const Algorithm& algorithm,
                    const std::string& what) {
  const CompileContext context{spec, layout, grid, options};
  if (!algorithm.serves(context)) return;
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < grid.world_size(); ++rank) {
    schedules.push_back(compile(rank, algorithm, context));
  }
  EXPECT_EQ(verify(schedules, grid, spec), std::nullopt)
      << what << " " << to_string(layout.dtype) << (layout.out_of_place ? " out of place" : "");
}

/// Makes nodes of these sizes, with consecutive or alternating ranks.
ProcessGrid grid_of(std::vector<int> sizes, bool in_turns) {
  if (!in_turns) return ProcessGrid::with_node_sizes(sizes);
  std::vector<std::string> nodes;
  for (bool is_done = false; !is_done;) {
    is_done = true;
    for (std::size_t node = 0; node < sizes.size(); ++node) {
      if (sizes[node]-- <= 0) continue;
      nodes.push_back(std::to_string(node));
      is_done = false;
    }
  }
  return ProcessGrid(nodes);
}

class SpecShapes : public testing::TestWithParam<Case> {
 protected:
  CollectiveKind kind() const { return GetParam().kind; }
  bool is_on_device() const { return GetParam().memory == MemoryKind::kDevice; }

  void expect_correct(const CollectiveSpec& spec, const ProcessGrid& grid,
                      const CompileOptions& options, DType dtype, bool out_of_place,
                      const std::string& what) {
    const bool is_cast = GetParam().placement == Placement::kStaged;
    const bool may_be_apart = GetParam().placement == Placement::kUser;
    BucketLayout layout{.count = spec.count(),
                        .dtype = is_cast ? DType::kBFloat16 : dtype,
                        .placement = GetParam().placement,
                        .memory = GetParam().memory,
                        .out_of_place = (out_of_place && may_be_apart) || has_pairs(kind())};
    // an all-to-all in place
    layout.replaces_inputs = is_on_device() && has_pairs(kind()) && !out_of_place;
    expect_reached(spec, grid, layout, options, *GetParam().algorithm, what);
  }

  /// Tests a shape with `count` elements for each rank.
  void expect_shape(const std::vector<int>& sizes, bool in_turns, const CompileOptions& options,
                    int root, std::size_t count, bool out_of_place) {
    const ProcessGrid grid = grid_of(sizes, in_turns);
    const std::vector<std::size_t> counts(static_cast<std::size_t>(grid.world_size()), count);
    expect_correct(spec_of(kind(), counts, root), grid, options, DType::kFloat32, out_of_place,
                   test::shape_text(sizes) + (in_turns ? " in turns" : "") + " root " +
                       std::to_string(root) + " count " + std::to_string(count));
  }

  /// Tests all shapes.
  void reach(const CompileOptions& options) {
    constexpr std::array<std::size_t, 2> kCounts{1, 331}, kFewer{1, 9};
    std::size_t shape = 0;
    test::for_each_node_shape_up_to(kMostSpecRanks, [&](const std::vector<int>& sizes) {
      if (testing::Test::HasFailure()) return;
      ++shape;
      const int roots = has_root(kind()) ? std::reduce(sizes.begin(), sizes.end()) : 1;
      if (std::reduce(sizes.begin(), sizes.end()) > kMostRanksOfAll) {
        return expect_shape(sizes, shape % 5 < 2, options, static_cast<int>(shape) % roots,
                            kFewer[shape % 2], shape % 4 < 2);
      }
      for (const std::size_t count : kCounts) {
        for (int root = 0; root < roots; ++root) {
          for (const bool out_of_place : {false, true}) {
            expect_shape(sizes, (shape + count) % 2 == 0, options, root, count, out_of_place);
            if (testing::Test::HasFailure()) return;
          }
        }
      }
    });
  }
};

TEST_P(SpecShapes, AreReached) {
  // Small slots take many rounds; large slots take one.
  for (const std::size_t slot : {std::size_t{512}, std::size_t{1} << 20}) {
    reach({.chunk_bytes = 512, .slot_bytes = slot, .cached_slot_bytes = slot});
    if (testing::Test::HasFailure() || is_on_device()) return;
  }
}

// Cast elements are not exposed.
class ExposedShapes : public SpecShapes {};

TEST_P(ExposedShapes, AreReached) {
  CompileOptions options{.chunk_bytes = 512, .slot_bytes = 512, .cached_slot_bytes = 512};
  expose_all(options);
  reach(options);
}

TEST_P(SpecShapes, AreReachedInUnevenParts) {
  constexpr std::uint32_t kSeed = 20261123;
  std::mt19937 random(kSeed);
  const auto below = [&](std::size_t limit) { return random() % limit; };
  for (int round = 0; round < 120; ++round) {
    std::vector<int> sizes(1 + below(5));
    std::size_t ranks = 0;
    for (int& size : sizes) {
      size = 1 + static_cast<int>(below(sizes.size() > 3 ? 2 : 3));
      ranks += static_cast<std::size_t>(size);
    }
    std::vector<std::size_t> counts(ranks);
    for (std::size_t& count : counts) count = below(3) == 0 ? 0 : below(200);
    const std::size_t most = below(2) == 0 ? 300 : 1 << 20;
    CompileOptions options{.chunk_bytes = 64 + below(300),
                           .slot_bytes = 64 + below(most),
                           .cached_slot_bytes = 64 + below(most),
                           .window = 1 + below(3)};
    if (below(2) == 0) expose_all(options);
    const DType dtype = below(2) == 0 ? DType::kFloat32 : DType::kBFloat16;
    const CollectiveSpec spec = spec_of(kind(), counts, static_cast<int>(below(ranks)));
    for (const bool out_of_place : {false, true}) {
      expect_correct(spec, ProcessGrid::with_node_sizes(sizes), options, dtype, out_of_place,
                     test::shape_text(sizes) + " round " + std::to_string(round) + " seed " +
                         std::to_string(kSeed));
      if (testing::Test::HasFailure()) return;
    }
  }
}

// In host memory, several tensors form one spec.
class DeviceShapes : public SpecShapes {};

TEST_P(DeviceShapes, AreReachedForSeveralTensors) {
  for (const std::vector<int>& sizes : {std::vector<int>{3}, {2, 2}, {1, 1, 1}, {3, 3, 3, 3}}) {
    const ProcessGrid grid = ProcessGrid::with_node_sizes(sizes);
    const auto ranks = static_cast<std::size_t>(grid.world_size());
    std::vector<std::size_t> uneven(ranks, 7), few(ranks), even(ranks, 40);
    uneven.front() = 0;
    few.back() = 3;
    for (int root = 0; root < grid.world_size(); ++root) {
      const CollectiveSpec spec = CollectiveSpec::of_tensors(
          {spec_of(kind(), uneven, root), spec_of(kind(), few, root), spec_of(kind(), even, root)});
      for (const bool out_of_place : {false, true}) {
        expect_correct(spec, grid, {}, DType::kFloat32, out_of_place,
                       test::shape_text(sizes) + " root " + std::to_string(root));
      }
    }
  }
}

std::string name_of(const testing::TestParamInfo<Case>& each) {
  return std::string(call_name(each.param.kind)) + "_" + std::string(each.param.algorithm->name()) +
         (each.param.placement == Placement::kStaged ? "_cast_or_packed" : "");
}

/// Returns the cases on the device, or those in host memory whose elements are not cast.
std::vector<Case> cases_of(MemoryKind memory) {
  std::vector<Case> found = cases();
  std::erase_if(found, [memory](const Case& each) {
    return each.memory != memory ||
           (memory == MemoryKind::kHost && each.placement == Placement::kStaged);
  });
  return found;
}

INSTANTIATE_TEST_SUITE_P(Algorithms, SpecShapes, testing::ValuesIn(cases()), name_of);
INSTANTIATE_TEST_SUITE_P(Algorithms, ExposedShapes, testing::ValuesIn(cases_of(MemoryKind::kHost)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Algorithms, DeviceShapes, testing::ValuesIn(cases_of(MemoryKind::kDevice)),
                         name_of);

// Tests random parts that no collective has: some ranks contribute, others receive.
TEST(AnySpec, IsReachedByEveryAlgorithmThatServesIt) {
  constexpr std::uint32_t kSeed = 15;
  std::mt19937 random(kSeed);
  const auto below = [&](std::size_t limit) { return random() % limit; };
  for (int round = 0; round < 150; ++round) {
    std::vector<int> sizes(1 + below(3));
    int ranks = 0;
    for (int& size : sizes) ranks += size = 1 + static_cast<int>(below(3));
    const auto some_ranks = [&](int least) {
      const auto count =
          least + static_cast<int>(below(static_cast<std::size_t>(ranks - least + 1)));
      const auto first = static_cast<int>(below(static_cast<std::size_t>(ranks - count + 1)));
      return RankRange(first, first + count);
    };
    std::vector<CollectiveSpec::Part> parts;
    std::size_t offset = 0;
    for (std::size_t part = 1 + below(4); part > 0; --part) {
      const Extent extent{offset, below(100)};
      const RankRange contributors = some_ranks(1);
      parts.push_back({extent, contributors, some_ranks(0)});
      offset += extent.count;
    }
    const CollectiveSpec spec = CollectiveSpec::of_parts(ranks, parts);
    CompileOptions options{.slot_bytes = 64 + below(300),
                           .cached_slot_bytes = 64 + below(300),
                           .window = 1 + below(3)};
    if (below(2) == 0) expose_all(options);
    for (const Algorithm* algorithm : all_algorithms()) {
      for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
        expect_reached(spec, ProcessGrid::with_node_sizes(sizes),
                       {.count = spec.count(),
                        .dtype = dtype,
                        .placement = Placement::kUser,
                        .out_of_place = true},
                       options, *algorithm,
                       test::shape_text(sizes) + " round " + std::to_string(round) + " seed " +
                           std::to_string(kSeed));
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

}  // namespace
}  // namespace kolo
