#include "comm/collective/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>

#include "comm/base/error.h"
#include "comm/collective/compile.h"
#include "comm/verify/verifier.h"
#include "tests/support/compiled_schedules.h"
#include "tests/support/node_shapes.h"

namespace kolo {
namespace {

using testing::HasSubstr;

/// Calls visit(algorithm, grid, layout) for every algorithm, and every hierarchy of two, in every
/// kind of memory that it takes, on every shape of 1 to 8 ranks.
template <typename Visit>
void for_each_use(Visit visit) {
  constexpr int kMost = 8;
  for (const MemoryKind memory : {MemoryKind::kHost, MemoryKind::kDevice}) {
    for (const Algorithm& algorithm : algorithms_for(memory)) {
      for (int ranks = 1; ranks <= kMost; ++ranks) {
        test::for_each_node_shape(ranks, [&](const std::vector<int>& sizes) {
          const ProcessGrid grid = ProcessGrid::with_node_sizes(sizes);
          SCOPED_TRACE(algorithm.to_string() + " on " + test::shape_text(sizes));
          visit(algorithm, grid, memory);
        });
      }
    }
  }
}

TEST(Registry, EveryAlgorithmAndHierarchySumsOnEveryShape) {
  for_each_use([](const Algorithm& algorithm, const ProcessGrid& grid, MemoryKind memory) {
    BucketLayout layout{.count = 331, .memory = memory};
    if (memory == MemoryKind::kDevice) layout.count = 3 * device_padding(grid, layout.dtype);
    const std::vector<Schedule> schedules =
        test::compile_all(grid, layout, {.algorithm = algorithm, .chunk_bytes = 1024});
    EXPECT_EQ(verify(schedules, grid, Goal::all_reduce(grid.world_size())), std::nullopt);
  });
}

TEST(Registry, EveryAlgorithmAndHierarchyHasAPrice) {
  for_each_use([](const Algorithm& algorithm, const ProcessGrid& grid, MemoryKind memory) {
    const CostModel model(grid, {});
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{4}, std::size_t{1} << 20}) {
      const double us = memory == MemoryKind::kHost ? model.predict_us(algorithm, {.bytes = bytes})
                                                    : model.predict_device_us(algorithm, bytes);
      EXPECT_TRUE(std::isfinite(us) && us >= 0) << us;
      EXPECT_TRUE(us > 0 || grid.world_size() == 1 || bytes == 0) << bytes;
    }
  });
}

// Chunks that follow from prices, which is what a user gets who names the algorithm and no more.
TEST(Registry, EveryAlgorithmAndHierarchyHasChunks) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes({2, 2});
  for (const Algorithm& algorithm : algorithms_for(MemoryKind::kHost)) {
    SCOPED_TRACE(algorithm.to_string());
    const BucketLayout layout{.count = 256};
    const CostModel model(grid, costs_for_sizes(algorithm, {}));
    const CompileOptions options{.algorithm = algorithm,
                                 .chunk_bytes = model.chunk_bytes(algorithm, host_bucket(layout))};
    EXPECT_EQ(verify(test::compile_all(grid, layout, options), grid, Goal::all_reduce(4)),
              std::nullopt);
  }
}

TEST(Registry, EveryAlgorithmAndHierarchyReadsWhatItPrints) {
  std::set<std::string> texts;
  for (const MemoryKind memory : {MemoryKind::kHost, MemoryKind::kDevice}) {
    for (const Algorithm& algorithm : algorithms_for(memory)) {
      EXPECT_EQ(Algorithm::parse(algorithm.to_string()), algorithm);
      EXPECT_EQ(AlgorithmRequest(algorithm.to_string()).algorithm(), algorithm);
      texts.insert(algorithm.to_string());
    }
  }
  for (const AlgorithmEntry* entry : algorithm_entries()) {
    EXPECT_TRUE(texts.contains(std::string(entry->name))) << entry->name;
  }
  EXPECT_TRUE(texts.contains("hierarchical:ring,ring"));
  EXPECT_FALSE(texts.contains("hierarchical:native,native"));
}

TEST(Registry, RequestsLeaveAChoiceOrNameOne) {
  EXPECT_TRUE(AlgorithmRequest().is_auto());
  EXPECT_TRUE(AlgorithmRequest("auto").is_auto());
  EXPECT_TRUE(AlgorithmRequest("hierarchical").is_any_hierarchy());
  EXPECT_FALSE(AlgorithmRequest("hierarchical").is_auto());
  EXPECT_FALSE(AlgorithmRequest("ring").is_auto());
  for (const std::string& text : algorithm_texts()) {
    if (text.find("LOCAL") != std::string::npos) continue;  // Stands for many.
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
  EXPECT_THAT(error_of(""), HasSubstr("halving_doubling"));
  EXPECT_THAT(error_of("hierarchical:"), HasSubstr("hierarchical:LOCAL,CROSS"));
  EXPECT_THAT(error_of("hierarchical:direct"), HasSubstr("hierarchical:LOCAL,CROSS"));
  EXPECT_THAT(error_of("hierarchicaldirect,ring"), HasSubstr("hierarchical:LOCAL,CROSS"));
  EXPECT_THAT(error_of("hierarchical:tree,ring"),
              HasSubstr("LOCAL of 'hierarchical:tree,ring': 'tree' is not direct, native or ring"));
  // `flat` is an algorithm, but not one between nodes.
  EXPECT_THAT(error_of("hierarchical:direct,flat"),
              HasSubstr("CROSS of 'hierarchical:direct,flat': 'flat' is not direct, ring, tree or "
                        "halving_doubling"));
  EXPECT_THAT(error_of("hierarchical:native,native"), HasSubstr("CROSS"));
  EXPECT_THAT(error_of("hierarchical:direct,rimg"), HasSubstr("did you mean ring?"));
}

}  // namespace
}  // namespace kolo
