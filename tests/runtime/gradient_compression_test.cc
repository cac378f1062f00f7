#include "runtime/gradient_compression.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/base/check.h"
#include "comm/base/error.h"

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

}  // namespace
}  // namespace kolo
