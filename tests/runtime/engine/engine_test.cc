#include "runtime/engine/engine.h"

#include <gmock/gmock.h>

#include <cstring>
#include <numeric>
#include <random>

#include "comm/base/half.h"
#include "tests/support/engine_job.h"
#include "tests/support/sanitized.h"

namespace kolo {
namespace {

using test::EngineJob;
using test::error_of;
using test::view;

/// Returns small integers, so that sums are exact in any order.
float element(int rank, std::size_t index) {
  return static_cast<float>((rank + 1) * (static_cast<int>(index % 11) + 1));
}

struct Shape {
  std::vector<int> nodes;
  std::string algorithm;
  std::size_t chunk_bytes = 256;
};

class EngineShapes : public testing::TestWithParam<Shape> {};

TEST_P(EngineShapes, AllReduceSumsForAnyInterleaving) {
  for (std::uint64_t seed = 0; seed < (test::kSanitized ? 2 : 6); ++seed) {
    EngineJob job(ProcessGrid::with_node_sizes(GetParam().nodes),
                  {.algorithm = GetParam().algorithm,
                   .chunk_bytes = GetParam().chunk_bytes,
                   .verify_schedules = true},
                  seed);
    for (const std::size_t count : std::initializer_list<std::size_t>{0, 1, 3, 64, 331}) {
      std::vector<std::vector<float>> data(static_cast<std::size_t>(job.world_size()));
      // The second use takes the plan of the first.
      for (int use = 0; use < 2; ++use) {
        std::vector<std::shared_ptr<Operation>> operations;
        for (int rank = 0; rank < job.world_size(); ++rank) {
          auto& mine = data[static_cast<std::size_t>(rank)];
          mine.resize(count);
          for (std::size_t i = 0; i < count; ++i) mine[i] = element(rank, i);
          operations.push_back(
              job.submit(rank, test::all_reduce("x" + std::to_string(count), mine)));
        }
        job.finish(operations);
        for (int rank = 0; rank < job.world_size(); ++rank) {
          EXPECT_EQ(error_of(*operations[static_cast<std::size_t>(rank)]), "");
          for (std::size_t i = 0; i < count; ++i) {
            float sum = 0;
            for (int other = 0; other < job.world_size(); ++other) sum += element(other, i);
            ASSERT_EQ(data[static_cast<std::size_t>(rank)][i], sum)
                << "seed " << seed << " rank " << rank << " element " << i;
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, EngineShapes,
    testing::Values(Shape{{1}, "auto"}, Shape{{2}, "auto"}, Shape{{4}, "direct"},
                    Shape{{3}, "ring"}, Shape{{1, 1}, "auto"}, Shape{{1, 1, 1}, "halving_doubling"},
                    Shape{{2, 2}, "auto"}, Shape{{2, 2}, "hierarchical:direct,direct"},
                    Shape{{3, 1, 2}, "hierarchical:direct,ring"},
                    Shape{{2, 2}, "hierarchical:ring,ring", kAutoBytes},
                    Shape{{1, 2}, "hierarchical:ring,direct", kAutoBytes},
                    Shape{{2, 2, 2, 2}, "halving_doubling"},
                    Shape{std::vector<int>(11, 1), "ring"}));

class GradientSets : public testing::TestWithParam<std::vector<int>> {};

// Gradients are marked in a different order on every rank, in arena and user memory, for several
// fusion limits, and compared with exact sums.
TEST_P(GradientSets, AverageInAnyOrderOfReadiness) {
  for (const std::size_t fusion_bytes : std::initializer_list<std::size_t>{0, 300, 1U << 16}) {
    for (bool in_arena : {true, false}) {
      const std::uint64_t seed = fusion_bytes + in_arena;
      EngineJob job(ProcessGrid::with_node_sizes(GetParam()),
                    {.fusion_bytes = fusion_bytes, .chunk_bytes = 512}, seed);
      const std::size_t world = static_cast<std::size_t>(job.world_size());
      const std::vector<std::size_t> counts = {5, 64, 1, 100, 33, 17};
      std::vector<std::vector<std::vector<float>>> memory(world);
      std::vector<std::shared_ptr<GradientSetState>> sets;
      for (int rank = 0; rank < job.world_size(); ++rank) {
        std::vector<GradientSpec> specs;
        for (std::size_t count : counts) {
          memory[static_cast<std::size_t>(rank)].emplace_back(count);
          specs.push_back({.name = "g" + std::to_string(specs.size()), .shape = {count}});
          if (!in_arena) specs.back().data = memory[static_cast<std::size_t>(rank)].back().data();
        }
        sets.push_back(std::make_shared<GradientSetState>("model", specs, GradientOptions{}));
        job.engine(rank).submit(sets.back());
      }
      job.run_until_registered(sets);
      for (const auto& set : sets) EXPECT_EQ(set->summary().hash, sets[0]->summary().hash);

      std::mt19937_64 random(seed);
      for (int iteration = 0; iteration < 3; ++iteration) {
        for (int rank = 0; rank < job.world_size(); ++rank) {
          GradientSetState& set = *sets[static_cast<std::size_t>(rank)];
          std::vector<std::size_t> order(counts.size());
          std::iota(order.begin(), order.end(), std::size_t{0});
          std::shuffle(order.begin(), order.end(), random);
          for (std::size_t g : order) {
            auto* values = static_cast<float*>(set.view(g).data);
            for (std::size_t i = 0; i < counts[g]; ++i) {
              values[i] = element(rank, i + g) * static_cast<float>(world) *
                          static_cast<float>(iteration + 1);
            }
            test::mark(job.engine(rank), set, g);
          }
        }
        job.run_until_idle();
        for (const auto& set : sets) {
          ASSERT_TRUE(set->iterations().wait(std::chrono::milliseconds(1)));
          for (std::size_t g = 0; g < counts.size(); ++g) {
            const auto* values = static_cast<const float*>(set->view(g).data);
            for (std::size_t i = 0; i < counts[g]; ++i) {
              float sum = 0;
              for (int other = 0; other < job.world_size(); ++other) sum += element(other, i + g);
              ASSERT_EQ(values[i], sum * static_cast<float>(iteration + 1))
                  << "seed " << seed << " gradient " << g;
            }
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, GradientSets,
                         testing::Values(std::vector<int>{1}, std::vector<int>{2},
                                         std::vector<int>{4}, std::vector<int>{1, 1},
                                         std::vector<int>{2, 2}, std::vector<int>{2, 1, 1}));

// All other gradients are in memory of the program, so the arena holds only the empty one.
TEST(Engine, AnEmptyGradientWithoutMemoryHasAPlaceInTheArena) {
  EngineJob job(ProcessGrid::with_node_sizes({2, 2}), {}, 1);
  std::vector<std::vector<float>> memory(4, std::vector<float>(4));
  std::vector<std::shared_ptr<GradientSetState>> sets;
  for (int rank = 0; rank < 4; ++rank) {
    auto& mine = memory[static_cast<std::size_t>(rank)];
    sets.push_back(std::make_shared<GradientSetState>(
        "model",
        std::vector<GradientSpec>{{.name = "weight", .shape = {4}, .data = mine},
                                  {.name = "nothing", .shape = {0}}},
        GradientOptions{}));
    job.engine(rank).submit(sets.back());
  }
  job.run_until_registered(sets);
  for (int rank = 0; rank < 4; ++rank) {
    GradientSetState& set = *sets[static_cast<std::size_t>(rank)];
    ASSERT_TRUE(set.arena_region().has_value());
    EXPECT_EQ(set.view(1).data, job.transport(rank).memory(rank).data() + *set.arena_region());
    for (std::size_t i = 0; i < 4; ++i) {
      memory[static_cast<std::size_t>(rank)][i] = 4 * element(rank, i);
    }
    for (const std::size_t g : {1U, 0U}) test::mark(job.engine(rank), set, g);
  }
  job.run_until_idle();
  for (const auto& set : sets) ASSERT_TRUE(set->wait(std::chrono::milliseconds(1)));
  for (const auto& mine : memory) {
    for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(mine[i], 10 * element(0, i));
  }
}

// Options are equal on all ranks, but sizes of buckets also follow from prices, which are rounded.
TEST(Engine, PlansThatDifferBetweenRanksAreAMismatch) {
  EngineJob job(ProcessGrid::with_node_sizes({2, 1}), {}, 1, std::nullopt,
                {.options = [](int rank, Options options) {
                  options.fusion_bytes = rank == 2 ? 0 : std::size_t{1} << 16;
                  return options;
                }});
  for (const auto& set :
       job.register_sets({{.name = "g0", .shape = {5}}, {.name = "g1", .shape = {7}}})) {
    try {
      set->registration().wait(std::chrono::milliseconds(1));
      ADD_FAILURE() << "ranks have agreed on different buckets";
    } catch (const KoloError& e) {
      EXPECT_EQ(e.error().code, ErrorCode::kMismatch);
      EXPECT_THAT(
          e.what(),
          testing::AllOf(testing::HasSubstr("ranks 0, 1 submit bucket 0 of 'model' ('g1', 'g0')"),
                         testing::HasSubstr("rank 2 submits bucket 0 of 'model' ('g1')")));
    }
  }
}

// Equal plans and inputs give equal bits for any interleaving, and with `direct` any fusion limit.
TEST(Engine, BitsDoNotDependOnTimingOrFusion) {
  std::vector<float> reference;
  for (const std::size_t fusion_bytes : std::initializer_list<std::size_t>{
           std::size_t{0}, std::size_t{1000}, std::size_t{1} << 16}) {
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
      EngineJob job(ProcessGrid::with_node_sizes({2, 1}),
                    {.fusion_bytes = fusion_bytes, .algorithm = "direct"}, seed);
      const auto sets = job.register_sets({{.name = "g0", .shape = {100}},
                                           {.name = "g1", .shape = {30}},
                                           {.name = "g2", .shape = {77}}});
      for (int rank = 0; rank < 3; ++rank) {
        std::mt19937 values(static_cast<unsigned>(rank));
        for (std::size_t g = 0; g < 3; ++g) {
          const BufferView gradient = sets[static_cast<std::size_t>(rank)]->view(g);
          for (std::size_t i = 0; i < gradient.count; ++i) {
            static_cast<float*>(gradient.data)[i] =
                std::uniform_real_distribution<float>(-1, 1)(values);
          }
          test::mark(job.engine(rank), *sets[static_cast<std::size_t>(rank)], g);
        }
      }
      job.run_until_idle();
      for (const auto& set : sets) {
        ASSERT_TRUE(set->iterations().wait(std::chrono::milliseconds(1)));
        std::vector<float> result;
        for (std::size_t g = 0; g < 3; ++g) {
          const auto* values = static_cast<const float*>(set->view(g).data);
          result.insert(result.end(), values, values + set->view(g).count);
        }
        if (reference.empty()) reference = result;
        ASSERT_EQ(std::memcmp(result.data(), reference.data(), result.size() * sizeof(float)), 0)
            << "seed " << seed << " fusion " << fusion_bytes;
      }
    }
  }
}

// Each input is rounded once, summed in float32 in rank order, scaled, and rounded once more.
TEST(Engine, SixteenBitWireRoundsOnce) {
  EngineJob job(ProcessGrid::with_node_sizes({2, 1}), {.algorithm = "direct"}, 3);
  constexpr std::size_t kElements = 257;
  const auto sets =
      job.register_sets({{.name = "g", .shape = {kElements}}}, {.wire_dtype = DType::kBFloat16});
  std::vector<std::vector<float>> input(3, std::vector<float>(kElements));
  for (int rank = 0; rank < 3; ++rank) {
    std::mt19937 values(static_cast<unsigned>(rank));
    auto& mine = input[static_cast<std::size_t>(rank)];
    for (float& value : mine) value = std::uniform_real_distribution<float>(-10, 10)(values);
    std::copy(mine.begin(), mine.end(),
              static_cast<float*>(sets[static_cast<std::size_t>(rank)]->view(0).data));
    test::mark(job.engine(rank), *sets[static_cast<std::size_t>(rank)], 0);
  }
  job.run_until_idle();
  const auto rounded = [](float value) { return to_float(to_bfloat16(value)); };
  for (std::size_t i = 0; i < kElements; ++i) {
    const float sum = rounded(input[0][i]) + rounded(input[1][i]) + rounded(input[2][i]);
    const float expected = rounded(sum / 3);
    for (const auto& set : sets)
      ASSERT_EQ(static_cast<const float*>(set->view(0).data)[i], expected) << i;
  }
}

// Gradients are far from float16's range. After a few iterations exponents are adapted, equally on
// all ranks, for every schedule of 16-bit buckets. A gradient that is not finite stays so, and
// changes no exponent.
TEST(Engine, Float16WireFindsTheRangeOfEachGradient) {
  constexpr std::size_t kElements = 1031;
  constexpr int kJobRanks = 3, kIterations = 12, kInfiniteAt = 9;
  constexpr float kMagnitudes[] = {1e-25f, 1e20f};
  for (const auto& [nodes, algorithm] : std::vector<std::pair<std::vector<int>, std::string>>{
           {{3}, "direct"},
           {{3}, "flat"},
           {{2, 1}, "direct"},
           {{2, 1}, "hierarchical:direct,direct"}}) {
    SCOPED_TRACE(algorithm + " on " + std::to_string(nodes.size()) + " nodes");
    EngineJob job(ProcessGrid::with_node_sizes(nodes), {.algorithm = algorithm}, 3);
    const auto sets = job.register_sets(
        {{.name = "small", .shape = {kElements}}, {.name = "large", .shape = {kElements}}},
        {.wire_dtype = DType::kFloat16});
    const auto at = [&](const auto& set, std::size_t g) {
      return std::span(static_cast<float*>(set->view(g).data), kElements);
    };
    std::vector<double> mean(kElements);
    for (int iteration = 0; iteration < kIterations; ++iteration) {
      for (int rank = 0; rank < kJobRanks; ++rank) {
        auto& set = sets[static_cast<std::size_t>(rank)];
        for (const std::size_t g : {0u, 1u}) {
          std::mt19937 random(static_cast<unsigned>(rank));
          std::uniform_real_distribution<float> values(0.5f, 1.0f);
          for (float& value : at(set, g)) value = kMagnitudes[g] * values(random);
        }
        if (iteration == kInfiniteAt && rank == 1) {
          at(set, 0)[7] = std::numeric_limits<float>::infinity();
        }
        for (const std::size_t g : {1u, 0u}) test::mark(job.engine(rank), *set, g);
      }
      std::ranges::fill(mean, 0.0);
      for (const auto& set : sets) {
        for (std::size_t i = 0; i < kElements; ++i) mean[i] += double{at(set, 1)[i]} / kJobRanks;
      }
      job.run_until_idle();
      for (const auto& set : sets) {
        ASSERT_TRUE(set->iterations().wait(std::chrono::milliseconds(1)));
        for (const std::size_t g : {0u, 1u}) {
          ASSERT_EQ(
              std::memcmp(at(set, g).data(), at(sets[0], g).data(), kElements * sizeof(float)), 0);
        }
      }
      EXPECT_EQ(std::isinf(at(sets[2], 0)[7]), iteration == kInfiniteAt);
      if (iteration < kInfiniteAt - 1) continue;
      for (std::size_t i = 0; i < kElements; ++i) {
        // Contributions, a node's sum and the mean are rounded once each. They are within one
        // binade of the mean.
        const double bound = 3 * 0x1p-11 * 1.5;
        EXPECT_NEAR(at(sets[1], 1)[i] / mean[i], 1.0, bound) << i;
        if (iteration == kInfiniteAt && i == 7) continue;
        EXPECT_NEAR(at(sets[1], 0)[i] / (mean[i] * (1e-25 / 1e20)), 1.0, bound) << i;
      }
    }
    for (const auto& set : sets) EXPECT_GT(set->too_large(), 0u);
  }
}

}  // namespace
}  // namespace kolo
