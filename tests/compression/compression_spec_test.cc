#include "compression/compression_spec.h"

#include <string>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/base/error.h"

namespace kolo {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

std::string error_of(std::string_view text) {
  try {
    CompressionRules::parse(text);
  } catch (const KoloError& e) {
    EXPECT_THAT(e.error().code, AnyOf(ErrorCode::kConfig, ErrorCode::kUsage));
    return e.what();
  }
  return "no error";
}

TEST(CompressionSpecTest, ParsesEveryWord) {
  const CompressionSpec all = CompressionSpec::parse(
      "topk( 0.02 , bf16, dgc=0.8, warmup=200, ramp=100, nofeedback, rule=lossless, route=owners, "
      "scope=flat )");
  EXPECT_EQ(all, (CompressionSpec{.method = &methods::topk,
                                  .density = 0.02,
                                  .wire = DType::kBFloat16,
                                  .momentum = 0.8f,
                                  .warmup = 200,
                                  .ramp = 100,
                                  .feedback = false,
                                  .rule = QuotaRule::kLossless,
                                  .route = ExchangeRoute::kPairwise,
                                  .scope = SparseScope::kFlat}));
  EXPECT_EQ(CompressionSpec::parse("topk(0.01,dgc)").momentum, 0.9f);
  EXPECT_EQ(CompressionSpec::parse("topk(0.01,fp32)").wire, DType::kFloat32);
  EXPECT_EQ(CompressionSpec::parse("topk(0.01,rule=lossless)").rule, QuotaRule::kLossless);
}

TEST(CompressionSpecTest, MethodsAreFoundByNameAndListedInHelp) {
  for (const CompressionMethod* method : compression_methods()) {
    SCOPED_TRACE(std::string(method->name));
    std::string text(method->name);
    if (method->takes_density && !method->is_open) {
      EXPECT_THAT(error_of(text), HasSubstr("needs a density, as in " + text + "(0.01)"));
    }
    if (method->takes_density || method->takes_threshold) text += "(0.25)";
    if (method->takes_rank) text += "(3)";
    const CompressionSpec spec = CompressionSpec::parse(" " + text + " ");
    EXPECT_EQ(spec, (CompressionSpec{.method = method,
                                     .density = spec.density,
                                     .threshold = spec.threshold,
                                     .matrix_rank = spec.matrix_rank}));
    EXPECT_EQ(method->takes_density, spec.density == 0.25);
    EXPECT_EQ(method->takes_threshold, spec.threshold == 0.25f);
    EXPECT_EQ(method->takes_rank, spec.matrix_rank == 3);
    EXPECT_EQ(spec.to_string(), text);
    EXPECT_THAT(compression_help(), HasSubstr(std::string(method->name)));
    EXPECT_THAT(error_of("zip"), HasSubstr(std::string(method->name)));
    EXPECT_EQ(method->make_codec != nullptr, method->forms != nullptr);
    if (!spec.may_be_coded()) {
      EXPECT_THAT(error_of(text + "(0.1)"), HasSubstr("takes no settings"));
      continue;
    }
    EXPECT_EQ(spec.for_tensor(std::vector<std::size_t>{1}), CompressionSpec());
    const CompressionSpec routed{.method = method, .route = ExchangeRoute::kPairwise};
    EXPECT_EQ(CompressionSpec::parse(routed.to_string()), routed);
    EXPECT_TRUE(method->is_open || method->needs != nullptr);
  }
}

TEST(CompressionSpecTest, TextsAreCanonical) {
  for (const char* text :
       {"none", "fp16", "bf16", "topk(0.001)", "auto(0.25)",
        "topk(0.01,dgc=0.9,nofeedback,route=owners)", "topk(0.01,bf16,dgc=0.9,warmup=5)",
        "topk(1,fp32,ramp=7,nofeedback,rule=lossless,route=allgather,scope=flat)", "int8",
        "int8(bf16,warmup=5,rule=lossless,route=owners)", "2bit(0.125,nofeedback)", "powersgd(4)",
        "powersgd(2,dgc=0.5,warmup=5,nofeedback,route=owners,scope=flat)"}) {
    EXPECT_EQ(CompressionSpec::parse(text).to_string(), text);
  }
  EXPECT_EQ(CompressionSpec::parse("topk(0.010, route=auto, fp16)").to_string(), "topk(0.01)");
  EXPECT_EQ(CompressionSpec::parse("auto").to_string(), "auto(0.01)");
  EXPECT_EQ(CompressionSpec::parse("2bit").to_string(), "2bit(0.5)");
}

TEST(CompressionSpecTest, TheRampFallsInStagesAboveTheDensity) {
  const CompressionSpec spec = CompressionSpec::parse("topk(0.01,warmup=10,ramp=30)");
  const auto density = [&](std::size_t step) {
    return density_at(spec.warm_up(), spec.density, step);
  };
  EXPECT_FALSE(density(9));
  EXPECT_EQ(density(10), 0.25);
  EXPECT_EQ(density(20), 0.0625);
  EXPECT_EQ(density(30), 0.015625);
  EXPECT_EQ(density(40), 0.01);
  const CompressionSpec above = CompressionSpec::parse("topk(0.5,ramp=30)");
  EXPECT_EQ(density_at(above.warm_up(), above.density, 0), 0.5);
}

TEST(CompressionSpecTest, ErrorsNameTheText) {
  EXPECT_THAT(error_of("topk(x)"), HasSubstr("'topk(x)': 'x' is not a number"));
  EXPECT_THAT(error_of("topk(0)"), HasSubstr("density 0 "));
  EXPECT_THAT(error_of("topk(1.5)"), HasSubstr("density 1.5 "));
  EXPECT_THAT(error_of("topk(nan)"), HasSubstr("density nan "));
  EXPECT_THAT(error_of("topk(0.1"), HasSubstr("')' is missing"));
  EXPECT_THAT(error_of("topk(0.1,dgc=1)"), HasSubstr("momentum 1 is not between"));
  EXPECT_THAT(error_of("topk(0.1,warmup)"), HasSubstr("did you mean warmup=?"));
  EXPECT_THAT(error_of("topk(0.1,warmup=)"), HasSubstr("'' is not a number"));
  EXPECT_THAT(error_of("topk(0.1,warmup=-1)"), HasSubstr("'-1' is not a number"));
  EXPECT_THAT(error_of("topk(0.1,rule=some)"),
              HasSubstr("'rule=some' is not rule=quota or rule=lossless"));
  EXPECT_THAT(error_of("topk(0.1,route=far)"),
              HasSubstr("'route=far' is not route=auto, route=allgather or route=owners"));
  EXPECT_THAT(error_of("topk(0.1,scope=all)"),
              HasSubstr("'scope=all' is not scope=nodes or scope=flat"));
  EXPECT_THAT(error_of("topk(0.1,64)"), HasSubstr("'64' is not fp32"));
  EXPECT_THAT(error_of("topk(0.1,speed=9)"), HasSubstr("'speed=' is not fp32"));
  EXPECT_THAT(error_of("2bit(0)"), HasSubstr("threshold 0 "));
  EXPECT_THAT(error_of("2bit(inf)"), HasSubstr("threshold inf "));
  EXPECT_THAT(error_of("2bit(warmup=3)"), HasSubstr("'warmup=3' is not a number"));
  EXPECT_THAT(error_of("int8(0.5)"), HasSubstr("'0.5' is not fp32"));
  EXPECT_THAT(error_of("int8(route=allgather)"), HasSubstr("choose route=owners"));
  EXPECT_THAT(error_of("2bit(1,ramp=5)"), HasSubstr("ramp= is for methods with a density"));
  EXPECT_THAT(error_of("int8(bf16)"), HasSubstr("bfloat16 would be the dtype of sums"));
  EXPECT_THAT(error_of("powersgd(0)"), HasSubstr("'powersgd(0)': a rank is at least 1"));
  EXPECT_THAT(error_of("powersgd(1.5)"), HasSubstr("'1.5' is not a number"));
  EXPECT_THAT(error_of("powersgd(-1)"), HasSubstr("'-1' is not a number"));
  EXPECT_THAT(error_of("powersgd(2,bf16)"), HasSubstr("factors are sent in float32"));
  EXPECT_THAT(error_of("powersgd(2,rule=lossless)"), HasSubstr("leave out dtype and rule="));
  EXPECT_THAT(error_of("powersgd(2,route=allgather)"), HasSubstr("choose route=owners"));
  EXPECT_THAT(error_of("powersgd(2,ramp=5)"), HasSubstr("ramp= is for methods with a density"));
  EXPECT_THAT(error_of("zip"), HasSubstr("'zip' is not none, fp16"));
  EXPECT_THAT(error_of(""), HasSubstr("one rule is empty; remove the extra comma"));
  EXPECT_THAT(error_of("*.bias=none,,fp16"),
              HasSubstr("one rule is empty; remove the extra comma"));
  EXPECT_THAT(error_of("=fp16"), HasSubstr("'=fp16': a rule has no name pattern"));
}

TEST(CompressionRulesTest, TheFirstRuleThatMatchesWins) {
  const CompressionRules rules =
      CompressionRules::parse("*.bias=none, embed*=topk(0.001), layer?.weight=bf16,*=topk(0.01)");
  EXPECT_EQ(rules.spec_of("embed.bias").to_string(), "none");
  EXPECT_EQ(rules.spec_of("embedding.weight").to_string(), "topk(0.001)");
  EXPECT_EQ(rules.spec_of("layer3.weight").to_string(), "bf16");
  EXPECT_EQ(rules.spec_of("layer13.weight").to_string(), "topk(0.01)");
  EXPECT_EQ(CompressionRules::parse(rules.to_string()).to_string(), rules.to_string());
  EXPECT_TRUE(rules.any(&CompressionSpec::leaves_choices));
  EXPECT_TRUE(CompressionRules::parse("fp16,a=auto").any(&CompressionSpec::leaves_choices));
  EXPECT_FALSE(CompressionRules::parse("a=fp16,b=topk(0.1,route=owners)")
                   .any(&CompressionSpec::leaves_choices));
  EXPECT_EQ(CompressionRules::parse("a=fp16").spec_of("b").to_string(), "none");
  EXPECT_EQ(CompressionRules::parse("auto").spec_of("anything").to_string(), "auto(0.01)");
}

TEST(CompressionRulesTest, CommasAndEqualSignsInBracketsBelongToTheSpec) {
  const CompressionRules rules =
      CompressionRules::parse("a*=topk(0.1,dgc=0.5,warmup=3),*=auto(0.02,rule=lossless)");
  EXPECT_EQ(rules.spec_of("a").to_string(), "topk(0.1,dgc=0.5,warmup=3)");
  EXPECT_EQ(rules.spec_of("b").to_string(), "auto(0.02,rule=lossless)");
  EXPECT_EQ(CompressionRules::parse("topk(0.1,warmup=3)").to_string(), "topk(0.1,warmup=3)");
}

TEST(CompressionRulesTest, Patterns) {
  EXPECT_TRUE(matches("*", ""));
  EXPECT_TRUE(matches("a*b*c", "a-b-b-c"));
  EXPECT_FALSE(matches("a*b*c", "a-c-b"));
  EXPECT_TRUE(matches("?x*", "axle"));
  EXPECT_FALSE(matches("?", ""));
  EXPECT_FALSE(matches("ab", "abc"));
  EXPECT_TRUE(matches("*.weight", "a.weight.weight"));
}

TEST(CompressionSpecTest, SmallAndOneDimensionalTensorsAreDense) {
  const CompressionSpec top_k = CompressionSpec::parse("topk(0.01)");
  using Shape = std::vector<std::size_t>;
  EXPECT_EQ(top_k.for_tensor(Shape{64, 64}), top_k);
  EXPECT_EQ(top_k.for_tensor(Shape{64, 63}), CompressionSpec());
  EXPECT_EQ(top_k.for_tensor(Shape{1 << 20}), CompressionSpec());
  const CompressionSpec half = CompressionSpec::parse("fp16");
  EXPECT_EQ(half.for_tensor(Shape{1}), half);
}

// Factors must halve the numbers at least. Rows are along the first dimension.
TEST(CompressionSpecTest, TensorsWithLargeFactorsAreDense) {
  const CompressionSpec rank_8 = CompressionSpec::parse("powersgd(8)");
  const auto is_dense = [&](const std::vector<std::size_t>& shape) {
    return rank_8.for_tensor(shape) == CompressionSpec();
  };
  EXPECT_FALSE(is_dense({32, 32, 32}));  // 8 (32 + 1024) = 8448 of 32768
  EXPECT_TRUE(is_dense({16, 64, 32}));   // 8 (16 + 2048) = 16512 of 32768
  EXPECT_FALSE(is_dense({4096, 20}));    // 8 (4096 + 20) = 32928 of 81920
  EXPECT_TRUE(is_dense({4096, 16}));
  EXPECT_TRUE(is_dense({1, 8192}));
}

}  // namespace
}  // namespace kolo
