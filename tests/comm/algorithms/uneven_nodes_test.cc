// Nodes have different sizes and links of different rates. No link between nodes carries more than
// the bound for nodes.

#include <gtest/gtest.h>

#include "comm/algorithms/compile.h"
#include "comm/verify/verifier.h"
#include "tests/support/compiled_schedules.h"
#include "tests/support/node_shapes.h"
#include "topology/node_costs.h"

namespace kolo {
namespace {

struct LinkBytes {
  std::size_t sent = 0, received = 0;
};

/// Returns the bytes that the ranks of each node exchange with other nodes.
std::vector<LinkBytes> bytes_by_node(const ProcessGrid& grid, const BucketLayout& layout,
                                     const CompileOptions& options) {
  std::vector<LinkBytes> nodes(static_cast<std::size_t>(grid.num_nodes()));
  for (int rank = 0; rank < grid.world_size(); ++rank) {
    LinkBytes& node = nodes[static_cast<std::size_t>(grid.node(rank))];
    for (const Step& step : test::compile_all_reduce(rank, layout, grid, options).steps) {
      const bool is_message = step.kind == StepKind::kSend || step.kind == StepKind::kRecv;
      if (!is_message || grid.same_node(rank, step.peer)) continue;
      if (step.kind == StepKind::kSend) {
        node.sent += step.sources[0].count * size_of(layout.dtype);
      } else {
        node.received += step.target.count * size_of(layout.dtype);
      }
    }
  }
  return nodes;
}

class UnevenNodes : public testing::TestWithParam<const char*> {};

TEST_P(UnevenNodes, EveryLinkCarriesTheBoundAndNoMore) {
  constexpr std::size_t kCount = std::size_t{1} << 18;
  constexpr std::size_t kChunks = 4;
  constexpr std::size_t kBytes = kCount * sizeof(float);
  for (int ranks = 2; ranks <= 8; ++ranks) {
    test::for_each_node_shape(ranks, [&](const std::vector<int>& sizes) {
      const std::size_t nodes = sizes.size();
      if (nodes == 1) return;
      const ProcessGrid grid = ProcessGrid::with_node_sizes(sizes);
      const std::size_t bound = 2 * (nodes - 1) * kBytes / nodes;
      // Parts are cut at whole units of kWireAlignment bytes, so a piece's part is at most one unit
      // larger than its share. It is exchanged with all other nodes twice, when it is summed and
      // when it is spread. A chunk has at most as many pieces as ranks.
      const std::size_t slack =
          kChunks * static_cast<std::size_t>(ranks) * 2 * (nodes - 1) * kWireAlignment;
      for (const LinkBytes& link :
           bytes_by_node(grid, {.count = kCount},
                         {.algorithm = GetParam(), .chunk_bytes = kBytes / kChunks})) {
        for (const std::size_t bytes : {link.sent, link.received}) {
          EXPECT_LE(bytes, bound + slack) << test::shape_text(sizes);
          EXPECT_GE(bytes + slack, bound) << test::shape_text(sizes);
        }
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Algorithms, UnevenNodes,
                         testing::Values("hierarchical:direct,ring", "hierarchical:direct,direct"),
                         [](const auto& param) {
                           const std::string name = param.param;
                           return name.substr(name.find(',') + 1);
                         });

/// Returns rates by which one node of three or more sums nothing, little, or most.
std::vector<double> rates_for(std::size_t nodes, std::size_t seed) {
  constexpr double kRates[] = {100, 50, 80, 10, 100, 400, 70};
  std::vector<double> rates;
  for (std::size_t node = 0; node < nodes; ++node) rates.push_back(kRates[(node + seed) % 7]);
  return rates;
}

TEST(UnevenLinks, CarryWhatTheSharesOfNodesSay) {
  constexpr std::size_t kCount = std::size_t{1} << 16;
  constexpr std::size_t kChunks = 4;
  constexpr std::size_t kBytes = kCount * sizeof(float);
  for (int ranks = 3; ranks <= 6; ++ranks) {
    test::for_each_node_shape(ranks, [&](const std::vector<int>& sizes) {
      const std::size_t nodes = sizes.size();
      if (nodes < 3) return;
      const ProcessGrid grid = ProcessGrid::with_node_sizes(sizes);
      CompileOptions options{.algorithm = "hierarchical:direct,direct",
                             .chunk_bytes = kBytes / kChunks};
      options.link_costs.node_rates = rates_for(nodes, static_cast<std::size_t>(ranks));
      const auto shares = node_shares(options.link_costs, static_cast<int>(nodes));
      // The slack is that of equal shares, plus half a unit for rounding a share.
      const std::size_t slack =
          2 * kChunks * static_cast<std::size_t>(ranks) * 2 * (nodes - 1) * kWireAlignment;
      const auto links = bytes_by_node(grid, {.count = kCount}, options);
      for (std::size_t node = 0; node < nodes; ++node) {
        const double buckets = 1 + (static_cast<double>(nodes) - 2) * shares[node];
        for (const std::size_t bytes : {links[node].sent, links[node].received}) {
          EXPECT_NEAR(static_cast<double>(bytes), buckets * kBytes, static_cast<double>(slack))
              << test::shape_text(sizes) << ", node " << node;
        }
      }
    });
  }
}

TEST(UnevenLinks, SumEveryElementOnce) {
  for (int ranks = 3; ranks <= 6; ++ranks) {
    test::for_each_node_shape(ranks, [&](const std::vector<int>& sizes) {
      const ProcessGrid grid = ProcessGrid::with_node_sizes(sizes);
      for (const std::size_t seed : std::initializer_list<std::size_t>{0, 3, 5}) {
        for (const char* algorithm : {"direct", "hierarchical:direct,direct"}) {
          for (const std::size_t count : std::initializer_list<std::size_t>{3, 331}) {
            CompileOptions options{
                .algorithm = algorithm, .chunk_bytes = 256, .network_window = 512};
            options.link_costs.node_rates = rates_for(sizes.size(), seed);
            std::vector<Schedule> schedules;
            for (int rank = 0; rank < ranks; ++rank) {
              schedules.push_back(test::compile_all_reduce(
                  rank, {.count = count, .placement = Placement::kStaged}, grid, options));
            }
            const auto wrong = verify(schedules, grid, CollectiveSpec::all_reduce(ranks));
            ASSERT_EQ(wrong, std::nullopt) << test::shape_text(sizes) << ", seed " << seed << ", "
                                           << algorithm << ", count " << count << ": " << *wrong;
          }
        }
      }
    });
  }
}

}  // namespace
}  // namespace kolo
