#include "fusion/gradient.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "comm/base/error.h"

namespace kolo {
namespace {

using testing::HasSubstr;

constexpr std::size_t kHuge = std::size_t{1} << 32;

std::vector<GradientSpec> two_gradients() {
  return {{.name = "weight", .shape = {3, 4}}, {.name = "bias", .shape = {4}}};
}

TEST(GradientSpec, CountsItsElements) {
  EXPECT_EQ((GradientSpec{.name = "matrix", .shape = {3, 4}}.count()), 12u);
  EXPECT_EQ((GradientSpec{.name = "scalar", .shape = {}}.count()), 1u);
  EXPECT_EQ((GradientSpec{.name = "empty", .shape = {3, 0, 5}}.count()), 0u);
  EXPECT_EQ((GradientSpec{.name = "empty", .shape = {kHuge, kHuge, 0}}.count()), 0u);
}

TEST(GradientSpec, RefusesMoreElementsThanMemoryHolds) {
  for (const std::vector<std::size_t>& shape :
       {std::vector<std::size_t>{kHuge, kHuge}, {kHuge, kHuge / 2, 2}, {2, kHuge << 28}}) {
    const GradientSpec spec{.name = "embedding", .shape = shape};
    EXPECT_THAT([&] { spec.count(); },
                testing::ThrowsMessage<UsageError>(HasSubstr("'embedding' of shape [")));
    EXPECT_THROW(check_gradients({{spec}}, {}), UsageError);
  }
}

TEST(DescribeGradients, HasALineForTheSetAndOneForEach) {
  float memory[4];
  auto gradients = two_gradients();
  gradients[1].data = memory;
  gradients[1].dtype = DType::kBFloat16;
  EXPECT_EQ(describe(gradients, {.op = ReduceOp::kSum, .wire_dtype = DType::kFloat16}),
            "2 gradients, sum, wire float16\n"
            "'weight': float32 [3, 4] in arena memory\n"
            "'bias': bfloat16 [4] in user memory\n");
}

TEST(DescribeGradients, SaysHowEachTravelsIfNotAsItsSet) {
  auto gradients = two_gradients();
  gradients[0].compression = "topk(0.01)";
  gradients[1].wire_dtype = DType::kFloat16;
  EXPECT_EQ(describe(gradients, {}),
            "2 gradients, average, wire as it is\n"
            "'weight': float32 [3, 4] in arena memory, topk(0.01)\n"
            "'bias': float32 [4] in arena memory, wire float16\n");
}

// Whatever ranks must have alike changes the text, and so the fingerprint.
TEST(DescribeGradients, ChangesWithEverythingThatMatters) {
  float memory[12];
  const std::string before = describe(two_gradients(), {});
  using Change = std::function<void(std::vector<GradientSpec>&, GradientOptions&)>;
  const Change changes[] = {
      [](auto& g, auto&) { g[0].name = "weights"; },
      [](auto& g, auto&) {
        g[0].shape = {4, 3};
      },
      [](auto& g, auto&) { g[0].shape = {12}; },
      [](auto& g, auto&) { g[0].dtype = DType::kFloat64; },
      [&](auto& g, auto&) { g[0].data = memory; },
      [](auto& g, auto&) { std::swap(g[0], g[1]); },
      [](auto& g, auto&) { g.pop_back(); },
      [](auto& g, auto&) { g[0].wire_dtype = DType::kFloat16; },
      [](auto& g, auto&) { g[0].compression = "topk(0.01)"; },
      [](auto&, auto& o) { o.op = ReduceOp::kMax; },
      [](auto&, auto& o) { o.divisor = Divisor::kContributingRanks; },
      [](auto&, auto& o) { o.divisor = Divisor::kSamples; },
      [](auto&, auto& o) { o.wire_dtype = DType::kFloat32; },
  };
  for (std::size_t i = 0; i < std::size(changes); ++i) {
    auto gradients = two_gradients();
    GradientOptions options;
    changes[i](gradients, options);
    EXPECT_NE(describe(gradients, options), before) << "change " << i;
  }
}

// Where user memory lies is each rank's own business.
TEST(DescribeGradients, DoesNotShowAddresses) {
  float here[12], there[12];
  auto gradients = two_gradients();
  gradients[0].data = here;
  const std::string before = describe(gradients, {});
  gradients[0].data = there;
  EXPECT_EQ(describe(gradients, {}), before);
}

TEST(CheckGradients, RefusesWhatCannotBeRegistered) {
  const auto refusal = [](const std::vector<GradientSpec>& gradients,
                          const GradientOptions& options) -> std::string {
    try {
      check_gradients(gradients, options);
      return {};
    } catch (const UsageError& e) {
      return e.what();
    }
  };
  EXPECT_EQ(refusal(two_gradients(), {.wire_dtype = DType::kBFloat16}), "");
  EXPECT_THAT(refusal({}, {}), HasSubstr("at least one"));
  EXPECT_THAT(refusal({{.name = ""}}, {}), HasSubstr("needs a name"));
  EXPECT_THAT(refusal({{.name = "a\nb"}}, {}), HasSubstr("one line"));
  EXPECT_THAT(refusal({{.name = "twin"}, {.name = "x"}, {.name = "twin"}}, {}),
              HasSubstr("'twin' appears twice"));
  EXPECT_THAT(refusal(two_gradients(), {.wire_dtype = DType::kInt32}), HasSubstr("float"));
  EXPECT_THAT(refusal({{.name = "a", .dtype = DType::kComplex64}}, {}),
              HasSubstr("gradient 'a' is of complex64"));
  EXPECT_THAT(refusal({{.name = "a", .dtype = DType::kBool}}, {}), HasSubstr("'a' is of bool"));
  EXPECT_EQ(refusal({{.name = "a", .dtype = DType::kInt8}}, {}), "");
  EXPECT_THAT(refusal(two_gradients(), {.op = ReduceOp::kBitOr}), HasSubstr("not by bit_or"));
  EXPECT_THAT(refusal(two_gradients(), {.op = ReduceOp::kPremulSum}),
              HasSubstr("not by premul_sum"));
  for (const Divisor divisor : {Divisor::kContributingRanks, Divisor::kSamples}) {
    EXPECT_EQ(refusal(two_gradients(), {.divisor = divisor}), "");
    EXPECT_THAT(refusal(two_gradients(), {.op = ReduceOp::kSum, .divisor = divisor}),
                HasSubstr("for averages, not for sum"));
    EXPECT_THAT(refusal({{.name = "a", .dtype = DType::kInt32}}, {.divisor = divisor}),
                HasSubstr("not for 'a'"));
    EXPECT_THAT(refusal({{.name = "a", .memory = MemoryKind::kDevice}}, {.divisor = divisor}),
                HasSubstr("not for 'a'"));
  }
  EXPECT_THAT(refusal({{.name = "a", .wire_dtype = DType::kInt32}}, {}), HasSubstr("'a' must be"));
}

}  // namespace
}  // namespace kolo
