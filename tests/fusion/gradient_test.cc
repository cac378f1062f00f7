#include "fusion/gradient.h"

#include <gmock/gmock.h>

#include "comm/base/error.h"
#include "fusion/gradient_checks.h"

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

// Each property that must be equal on all ranks changes the text, and thus the fingerprint.
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

// The address of user memory may differ between ranks.
TEST(DescribeGradients, DoesNotShowAddresses) {
  float here[12], there[12];
  auto gradients = two_gradients();
  gradients[0].data = here;
  const std::string before = describe(gradients, {});
  gradients[0].data = there;
  EXPECT_EQ(describe(gradients, {}), before);
}

template <typename Data>
constexpr bool makes_gradient = std::is_constructible_v<GradientData, Data>;
static_assert(makes_gradient<float*> && makes_gradient<void*> && makes_gradient<std::nullptr_t>);
static_assert(makes_gradient<std::vector<double>&> && makes_gradient<float (&)[3]>);
static_assert(!makes_gradient<const float*> && !makes_gradient<std::vector<float>>);

std::string refusal_of(std::vector<GradientSpec> gradients) {
  try {
    complete(gradients);
    check_gradients(gradients, {});
    return {};
  } catch (const UsageError& e) {
    return e.what();
  }
}

TEST(CompleteGradients, TakesDTypeAndShapeFromTheData) {
  std::vector<double> vector(7);
  float array[12];
  std::int32_t number = 0;
  std::vector<GradientSpec> gradients{{.name = "vector", .data = vector},
                                      {.name = "array", .shape = {3, 4}, .data = array},
                                      {.name = "pointer", .shape = {1}, .data = &number},
                                      {.name = "arena", .shape = {5}}};
  complete(gradients);
  EXPECT_EQ(gradients[0].dtype, DType::kFloat64);
  EXPECT_EQ(gradients[0].shape, std::vector<std::size_t>{7});
  EXPECT_EQ(gradients[1].dtype, DType::kFloat32);
  EXPECT_EQ(gradients[1].shape, (std::vector<std::size_t>{3, 4}));
  EXPECT_EQ(gradients[2].dtype, DType::kInt32);
  EXPECT_EQ(gradients[3].dtype, DType::kFloat32);
}

TEST(CompleteGradients, RefusesWhatNothingTells) {
  std::vector<float> data(6);
  void* const untyped = data.data();
  EXPECT_THAT(refusal_of({{.name = "w", .data = data.data()}}),
              HasSubstr("gradient 'w' has no shape"));
  EXPECT_THAT(refusal_of({{.name = "w"}}), HasSubstr("gradient 'w' has no shape"));
  EXPECT_THAT(refusal_of({{.name = "w", .shape = {2, 2}, .data = data}}),
              HasSubstr("the shape [2, 2], but its data has 6 elements"));
  EXPECT_THAT(refusal_of({{.name = "w", .shape = {6}, .data = untyped}}),
              HasSubstr("gradient 'w' has no dtype"));
  EXPECT_EQ(refusal_of({{.name = "w", .shape = {3}, .dtype = DType::kFloat64, .data = untyped}}),
            "");
}

TEST(CheckGradients, RefusesTwoThatShareMemory) {
  std::vector<float> data(10);
  const auto spec = [&](const char* name, std::size_t first, std::size_t count) {
    return GradientSpec{.name = name, .shape = {count}, .data = &data[first]};
  };
  EXPECT_EQ(refusal_of({spec("a", 5, 5), spec("b", 0, 5), spec("none", 3, 0)}), "");
  for (const auto& [first, count] : {std::pair{0, 10}, {9, 1}, {4, 2}}) {
    EXPECT_THAT(refusal_of({spec("embedding", 0, 10),
                            {.name = "arena", .shape = {4}},
                            spec("output", static_cast<std::size_t>(first),
                                 static_cast<std::size_t>(count))}),
                HasSubstr("gradients 'embedding' and 'output' of one set share memory"));
  }
  EXPECT_EQ(refusal_of({spec("a", 0, 5), spec("b", 5, 5)}), "") << "one behind the other";
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
  const auto samples_of = [&](DType dtype) {
    return refusal({{.name = "a", .dtype = dtype, .wire_dtype = DType::kFloat32}},
                   {.divisor = Divisor::kSamples});
  };
  EXPECT_THAT(samples_of(DType::kFloat16), HasSubstr("'a' is of float16"));
  for (const DType dtype : {DType::kBFloat16, DType::kFloat32}) EXPECT_EQ(samples_of(dtype), "");
  EXPECT_EQ(
      refusal({{.name = "a", .dtype = DType::kFloat16}}, {.divisor = Divisor::kContributingRanks}),
      "");
  EXPECT_THAT(refusal({{.name = "a", .wire_dtype = DType::kInt32}}, {}), HasSubstr("'a' must be"));
}

}  // namespace
}  // namespace kolo
