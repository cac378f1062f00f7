#include "comm/collective/exchange.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "comm/collective/compile.h"
#include "comm/verify/verifier.h"
#include "tests/support/node_shapes.h"

namespace kolo {
namespace {

// The number of shapes grows fast; sanitizers have seen all there is to see with fewer ranks.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kMostExchangeRanks = 5;
#else
constexpr int kMostExchangeRanks = 9;
#endif

struct Collective {
  std::string name;
  /// `counts`: elements of one part for each rank.
  std::function<Goal(const std::vector<std::size_t>& counts, int root)> goal;
  bool has_root = false;
  bool only_out_of_place = false;
};

std::size_t sum(const std::vector<std::size_t>& counts) {
  std::size_t total = 0;
  for (const std::size_t count : counts) total += count;
  return total;
}

/// Rank s has as many elements for rank r as both of their counts allow.
Goal all_to_all(const std::vector<std::size_t>& counts) {
  std::vector<std::size_t> all;
  for (const std::size_t from : counts) {
    for (const std::size_t to : counts) all.push_back(std::min(from, to));
  }
  return Goal::all_to_all(static_cast<int>(counts.size()), all);
}

std::vector<Collective> collectives() {
  return {
      {.name = "reduce",
       .goal =
           [](const auto& counts, int root) {
             return Goal::reduce(root, static_cast<int>(counts.size()), sum(counts));
           },
       .has_root = true},
      {.name = "broadcast",
       .goal =
           [](const auto& counts, int root) {
             return Goal::broadcast(root, static_cast<int>(counts.size()), sum(counts));
           },
       .has_root = true},
      {.name = "reduce_scatter",
       .goal = [](const auto& counts, int) { return Goal::reduce_scatter(counts); }},
      {.name = "all_gather",
       .goal = [](const auto& counts, int) { return Goal::all_gather(counts); }},
      {.name = "gather",
       .goal = [](const auto& counts, int root) { return Goal::gather(root, counts); },
       .has_root = true},
      {.name = "scatter",
       .goal = [](const auto& counts, int root) { return Goal::scatter(root, counts); },
       .has_root = true},
      {.name = "all_to_all",
       .goal = [](const auto& counts, int) { return all_to_all(counts); },
       .only_out_of_place = true},
  };
}

class ExchangeShapes : public testing::TestWithParam<Collective> {
 protected:
  void expect_correct(const Goal& goal, const ProcessGrid& grid, const CompileOptions& options,
                      DType dtype, const std::string& what) {
    for (const bool out_of_place : {false, true}) {
      if (!out_of_place && GetParam().only_out_of_place) continue;
      const BucketLayout layout{.count = goal.count(),
                                .dtype = dtype,
                                .placement = Placement::kUser,
                                .out_of_place = out_of_place};
      std::vector<Schedule> schedules;
      for (int rank = 0; rank < grid.world_size(); ++rank) {
        schedules.push_back(compile_exchange(rank, goal, layout, grid, options));
      }
      const auto wrong = verify(schedules, grid, goal);
      ASSERT_EQ(wrong, std::nullopt)
          << what << " " << to_string(dtype) << (out_of_place ? " out of place: " : ": ") << *wrong;
    }
  }
};

TEST_P(ExchangeShapes, ReachTheirGoal) {
  const CompileOptions options{.slot_bytes = 512, .cached_slot_bytes = 512};
  for (int ranks = 1; ranks <= kMostExchangeRanks; ++ranks) {
    test::for_each_node_shape(ranks, [&](const std::vector<int>& sizes) {
      const ProcessGrid grid = ProcessGrid::with_node_sizes(sizes);
      for (const std::size_t count : {std::size_t{1}, std::size_t{331}}) {
        if (count > 1 && ranks > 5) continue;
        const std::vector<std::size_t> counts(static_cast<std::size_t>(ranks), count);
        for (int root = 0; root < (GetParam().has_root ? ranks : 1); ++root) {
          expect_correct(GetParam().goal(counts, root), grid, options, DType::kFloat32,
                         test::shape_text(sizes) + " root " + std::to_string(root) + " count " +
                             std::to_string(count));
          if (testing::Test::HasFatalFailure()) return;
        }
      }
    });
  }
}

TEST_P(ExchangeShapes, ReachTheirGoalInUnevenParts) {
  constexpr std::uint32_t kSeed = 20261123;
  std::mt19937 random(kSeed);
  const auto below = [&](std::size_t limit) { return random() % limit; };
  for (int round = 0; round < 60; ++round) {
    std::vector<int> sizes(1 + below(3));
    std::size_t ranks = 0;
    for (int& size : sizes)
      ranks += static_cast<std::size_t>(size = 1 + static_cast<int>(below(3)));
    std::vector<std::size_t> counts(ranks);
    for (std::size_t& count : counts) count = below(3) == 0 ? 0 : below(200);
    const CompileOptions options{.slot_bytes = 64 + below(300),
                                 .cached_slot_bytes = 64 + below(300),
                                 .window = 1 + below(3)};
    const DType dtype = below(2) == 0 ? DType::kFloat32 : DType::kBFloat16;
    expect_correct(GetParam().goal(counts, static_cast<int>(below(ranks))),
                   ProcessGrid::with_node_sizes(sizes), options, dtype,
                   test::shape_text(sizes) + " round " + std::to_string(round) + " seed " +
                       std::to_string(kSeed));
    if (testing::Test::HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Collectives, ExchangeShapes, testing::ValuesIn(collectives()),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace kolo
