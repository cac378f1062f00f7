#include "comm/algorithms/registry.h"

#include <gmock/gmock.h>

#include <cmath>

#include "comm/algorithms/all_reduce/all_reduce.h"
#include "comm/algorithms/all_reduce/cost_model.h"
#include "comm/algorithms/compile.h"
#include "comm/base/error.h"
#include "comm/verify/verifier.h"
#include "tests/support/compiled_schedules.h"
#include "tests/support/node_shapes.h"

namespace kolo {
namespace {

using testing::HasSubstr;

/// Calls visit(algorithm, grid, layout) for every algorithm and every hierarchy of two algorithms,
/// in every kind of memory that it supports, on every shape of 1 to 8 ranks.
template <typename Visit>
void for_each_use(Visit visit) {
  constexpr int kMost = 8;
  for (const MemoryKind memory : {MemoryKind::kHost, MemoryKind::kDevice}) {
    for (const AllReduce& algorithm : all_reduces()) {
      if (!algorithm.takes(memory)) continue;
      for (int ranks = 1; ranks <= kMost; ++ranks) {
        test::for_each_node_shape(ranks, [&](const std::vector<int>& sizes) {
          const ProcessGrid grid = ProcessGrid::with_node_sizes(sizes);
          SCOPED_TRACE(std::string(algorithm.name()) + " on " + test::shape_text(sizes));
          visit(algorithm, grid, memory);
        });
      }
    }
  }
}

TEST(Registry, EveryAlgorithmAndHierarchyHasAPrice) {
  for_each_use([](const AllReduce& algorithm, const ProcessGrid& grid, MemoryKind memory) {
    const CostModel model(grid, {});
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{4}, std::size_t{1} << 20}) {
      const double us = memory == MemoryKind::kHost
                            ? model.host_price(algorithm, {.bytes = bytes}).us
                            : model.device_price(algorithm, bytes).us;
      EXPECT_TRUE(std::isfinite(us) && us >= 0) << us;
      EXPECT_TRUE(us > 0 || grid.world_size() == 1 || bytes == 0) << bytes;
    }
  });
}

// The cost model chooses chunks, as for a user who names only the algorithm.
TEST(Registry, EveryAlgorithmAndHierarchyHasChunks) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes({2, 2});
  const CollectiveSpec spec = CollectiveSpec::all_reduce(4);
  for (const AllReduce& algorithm : all_reduces()) {
    if (!algorithm.takes(MemoryKind::kHost)) continue;
    SCOPED_TRACE(algorithm.name());
    const BucketLayout layout{.count = 256};
    CompileOptions options{.algorithm = algorithm.name()};
    options.chunk_bytes = algorithm.chunk_bytes({spec, layout, grid, options});
    EXPECT_EQ(verify(test::compile_all(grid, layout, options), grid, spec), std::nullopt);
  }
}

TEST(Registry, NamesOfOneSpecDiffer) {
  std::set<std::string_view> names;
  for (const AllReduce& each : all_reduces()) EXPECT_TRUE(names.insert(each.name()).second);
  EXPECT_TRUE(names.contains("hierarchical:ring,ring"));
  EXPECT_FALSE(names.contains("hierarchical:native,native"));
  names.clear();
  for (const Algorithm* each : all_algorithms().subspan(all_reduces().size())) {
    EXPECT_TRUE(names.insert(each->name()).second) << each->name();
  }
}

TEST(Registry, RequestsNameAlgorithmsForAllOrForOne) {
  using Names = std::vector<std::string_view>;
  const auto names = [](const char* text, CollectiveKind kind) {
    static AlgorithmRequest request;  // names refer to it
    request = AlgorithmRequest(text);
    return request.names_for(kind);
  };
  EXPECT_EQ(names("auto", CollectiveKind::kAllReduce), Names{});
  EXPECT_EQ(names("ring", CollectiveKind::kReduce), Names{"ring"});
  EXPECT_EQ(names("ring;broadcast:direct", CollectiveKind::kBroadcast), (Names{"direct", "ring"}));
  EXPECT_EQ(names("ring;broadcast:direct", CollectiveKind::kAllReduce), Names{"ring"});
  EXPECT_EQ(names("ring;reduce:auto", CollectiveKind::kReduce), Names{});
  EXPECT_EQ(names("all-reduce:hierarchical:direct,ring", CollectiveKind::kAllReduce),
            Names{"hierarchical:direct,ring"});
  EXPECT_TRUE(AlgorithmRequest().names_for(CollectiveKind::kAllReduce).empty());
  EXPECT_FALSE(AlgorithmRequest("hierarchical").names_for(CollectiveKind::kAllReduce).empty());
  for (const Algorithm* each : all_algorithms()) {
    EXPECT_EQ(AlgorithmRequest(each->name()).names_for(CollectiveKind::kReduce),
              Names{each->name()});
  }
  for (const std::string& text : algorithm_texts()) {
    if (text.find("LOCAL") != std::string::npos) continue;  // a placeholder for many names
    EXPECT_NO_THROW(AlgorithmRequest{text}) << text;
  }
}

std::string error_of(const char* text) {
  try {
    AlgorithmRequest{text};
  } catch (const UsageError& e) {
    return e.error().what;
  }
  return "no error";
}

TEST(Registry, NamesWhatThereIsAndWhatIsNearest) {
  EXPECT_THAT(error_of("rign"), HasSubstr("'rign' is not auto, direct, flat, native, ring"));
  EXPECT_THAT(error_of("rign"), HasSubstr("did you mean ring?"));
  EXPECT_THAT(error_of("ring;broadcast:tree"), HasSubstr("'tree' is not auto, direct, flat"));
  EXPECT_THAT(error_of("hierarchical:direct,tree"), HasSubstr("'tree' is not direct, ring"));
  EXPECT_THAT(error_of(""), HasSubstr("halving_doubling"));
  EXPECT_THAT(error_of("hierarchical:"), HasSubstr("hierarchical:LOCAL,CROSS"));
  EXPECT_THAT(error_of("hierarchical:direct"), HasSubstr("hierarchical:LOCAL,CROSS"));
  EXPECT_THAT(error_of("hierarchicaldirect,ring"), HasSubstr("hierarchical:LOCAL,CROSS"));
  EXPECT_THAT(error_of("hierarchical:halving_doubling,ring"),
              HasSubstr("LOCAL of 'hierarchical:halving_doubling,ring': 'halving_doubling' is not "
                        "direct, native"));
  // `flat` is an algorithm, but it cannot be used between nodes.
  EXPECT_THAT(error_of("hierarchical:direct,flat"),
              HasSubstr("CROSS of 'hierarchical:direct,flat': 'flat' is not direct, ring"));
  EXPECT_THAT(error_of("hierarchical:native,native"), HasSubstr("CROSS"));
  EXPECT_THAT(error_of("hierarchical:direct,rimg"), HasSubstr("did you mean ring?"));
}

}  // namespace
}  // namespace kolo
