#include "runtime/gradient_compression.h"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/base/check.h"
#include "comm/base/error.h"
#include "runtime/compression_choice.h"

namespace kolo {
namespace {

using testing::HasSubstr;

std::vector<GradientSpec> model() {
  return {{.name = "fc.weight", .shape = {100, 100}},
          {.name = "fc.bias", .shape = {100}},
          {.name = "table", .shape = {50, 100}},
          {.name = "counts", .shape = {80, 80}, .dtype = DType::kInt32}};
}

std::vector<GradientSpec> resolved(const char* rules) {
  std::vector<GradientSpec> gradients = model();
  resolve_compression(gradients, CompressionRules::parse(rules));
  return gradients;
}

TEST(ResolveCompression, NoneLeavesTheSetsWire) {
  for (const GradientSpec& gradient : resolved("none")) {
    EXPECT_EQ(gradient.compression, "");
    EXPECT_FALSE(gradient.wire_dtype);
  }
  EXPECT_EQ(summarize_compression(resolved("none")), "");
}

TEST(ResolveCompression, SixteenBitsBecomeTheWireOfFloats) {
  const auto gradients = resolved("table=bf16,*=fp16");
  EXPECT_EQ(gradients[0].wire_dtype, DType::kFloat16);
  EXPECT_EQ(gradients[1].wire_dtype, DType::kFloat16);
  EXPECT_EQ(gradients[2].wire_dtype, DType::kBFloat16);
  EXPECT_FALSE(gradients[3].wire_dtype);
  for (const GradientSpec& gradient : gradients) EXPECT_EQ(gradient.compression, "");
}

TEST(ResolveCompression, LargeMatricesOnTheHostBecomeSparse) {
  const auto gradients = resolved("topk(0.010)");
  EXPECT_EQ(gradients[0].compression, "topk(0.01)");
  EXPECT_EQ(gradients[1].compression, "");
  EXPECT_EQ(gradients[2].compression, "topk(0.01)");
  EXPECT_EQ(gradients[3].compression, "");
  EXPECT_NO_THROW(check_compression(gradients, ReduceOp::kAverage));
  EXPECT_THROW(check_compression(gradients, ReduceOp::kMax), UsageError);
  EXPECT_NO_THROW(check_compression(resolved("fp16"), ReduceOp::kMax));
  EXPECT_EQ(summarize_compression(gradients),
            "2 of 4 gradients (30.2 % of elements) dense, 2 of 4 gradients (69.8 % of elements) "
            "topk(0.01)");
  std::vector<GradientSpec> on_device = model();
  on_device[0].memory = MemoryKind::kDevice;
  resolve_compression(on_device, CompressionRules::parse("topk(0.01)"));
  EXPECT_EQ(on_device[0].compression, "");
}

TEST(ResolveCompression, AGradientsOwnSpecCountsMoreThanRules) {
  std::vector<GradientSpec> gradients = model();
  gradients[0].compression = "none";
  gradients[2].compression = "topk(0.1)";
  resolve_compression(gradients, CompressionRules::parse("fp16"));
  EXPECT_FALSE(gradients[0].wire_dtype);
  EXPECT_EQ(gradients[2].compression, "topk(0.1)");
  gradients[0].compression = "zip";
  try {
    resolve_compression(gradients, CompressionRules::parse("none"));
    FAIL();
  } catch (const KoloError& e) {
    EXPECT_EQ(e.error().code, ErrorCode::kConfig);
    EXPECT_THAT(e.what(), HasSubstr("gradient 'fc.weight': compression 'zip'"));
  }
}

/// How a matrix of a million elements travels between four nodes, or within one, and why.
std::pair<GradientSpec, std::string> chosen(const char* rules, const ProcessGrid& grid,
                                            double network_bytes_per_us,
                                            double memory_bytes_per_us = 10'000) {
  std::vector<GradientSpec> gradients = {{.name = "matrix", .shape = {1000, 1000}}};
  resolve_compression(gradients, CompressionRules::parse(rules));
  LinkCosts costs;
  costs.network.bytes_per_us = network_bytes_per_us;
  costs.memory.shared_bytes_per_us = memory_bytes_per_us;
  const auto decisions = choose_compression(gradients, grid, costs);
  EXPECT_EQ(decisions.size(), 1u);
  return {gradients[0], decisions.empty() ? "" : to_string(decisions[0])};
}

TEST(ChooseCompression, SlowLinksMakeAutoSparseAndFastOnesDense) {
  const ProcessGrid four = ProcessGrid::with_node_sizes({1, 1, 1, 1});
  const auto [slow, why] = chosen("auto", four, 12.5);
  EXPECT_THAT(slow.compression, HasSubstr("topk(0.01,route="));
  EXPECT_THAT(why, HasSubstr("times as fast as dense"));
  const auto [fast, why_not] = chosen("auto", four, 50'000);
  EXPECT_EQ(fast.compression, "");
  EXPECT_FALSE(fast.wire_dtype);
  EXPECT_THAT(why_not, HasSubstr("less than 1.2"));
}

// Four hosts that are played on two cores select at the same time: what would pay on cores of their
// own does not pay there.
TEST(ChooseCompression, SharedCoresCountAgainstSelection) {
  const ProcessGrid four = ProcessGrid::with_node_sizes({1, 1, 1, 1});
  for (const double rank_cores : {1.0, 0.5}) {
    std::vector<GradientSpec> gradients = {{.name = "matrix", .shape = {1000, 1000}}};
    resolve_compression(gradients, CompressionRules::parse("auto"));
    LinkCosts costs;
    costs.selector = {.bytes_per_us = 8'000, .pair_us = 0.05};
    costs.rank_cores = rank_cores;
    costs.network.bytes_per_us = 1'000;
    const auto decisions = choose_compression(gradients, four, costs);
    ASSERT_EQ(decisions.size(), 1u);
    EXPECT_EQ(gradients[0].compression.empty(), rank_cores < 1) << decisions[0].reason;
    EXPECT_THAT(decisions[0].reason, HasSubstr("predicted"));
    EXPECT_GT(decisions[0].dense_ms, 0);
  }
}

TEST(ChooseCompression, InOneNodeAutoIsDense) {
  for (const int ranks : {1, 2, 4, 8}) {
    for (const double memory_bytes_per_us : {1.0, 1e4}) {
      const auto [gradient, why] =
          chosen("auto", ProcessGrid::with_node_sizes({ranks}), 12.5, memory_bytes_per_us);
      EXPECT_EQ(gradient.compression, "") << why;
      EXPECT_FALSE(gradient.wire_dtype) << why;
    }
  }
}

TEST(ChooseCompression, OfTopKOnlyTheRouteIsOpen) {
  const auto [gradient, why] = chosen("topk(0.001)", ProcessGrid::with_node_sizes({2}), 12.5);
  EXPECT_THAT(gradient.compression, HasSubstr("topk(0.001,route="));
  EXPECT_THAT(why, HasSubstr("which was asked for"));
}

}  // namespace
}  // namespace kolo
