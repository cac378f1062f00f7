// Tests layers that look up rows of a table.

#include <gtest/gtest.h>

#include <vector>

#include "tests/trainer/finite_difference.h"
#include "trainer/layers/tables.h"

namespace kolo::trainer {
namespace {

/// Returns the rows of a gradient, added up in a dense table.
std::vector<float> spread(const Parameter& table) {
  std::vector<float> dense(table.size());
  table.visit_gradient([&](std::size_t begin, std::span<const float> part) {
    for (std::size_t i = 0; i < part.size(); ++i) dense[begin + i] += part[i];
  });
  return dense;
}

const std::vector<std::int32_t> kIds = {3, 0, 5, 3, 3, 1, 0, 2, 2, 4, 0, 0};

TEST(LookupTest, GradientMatchesDifferences) {
  ParameterSet parameters(1);
  Lookup layer(parameters, "table", {.count = 12, .entries = 7, .width = 19, .deviation = 1.0f});
  parameters.own_gradients();
  const std::vector<float> weights = random_values(12 * 19, 7);
  const auto f = [&] { return dot(layer.forward(kIds), weights); };
  f();
  layer.backward(weights);
  expect_gradient(f, parameters[0].value(), parameters[0].gradient(), "table");
}

TEST(LookupTest, PaddingStaysZero) {
  ParameterSet parameters(1);
  Lookup layer(parameters, "table",
               {.count = 12, .entries = 7, .width = 2, .deviation = 1.0f, .padding = 0});
  parameters.use_rows();
  EXPECT_EQ(layer.forward(kIds)[2], 0.0f);
  EXPECT_NE(layer.forward(kIds)[0], 0.0f);
  layer.backward(random_values(24, 7));
  for (const std::int64_t row : parameters[0].rows()->indices()) EXPECT_NE(row, 0);
  EXPECT_EQ(parameters[0].rows()->indices().size(), 8u);
}

constexpr EmbeddingBag::Options kBag{
    .texts = 3, .length = 4, .words = 7, .width = 19, .deviation = 1.0f};
const std::vector<std::int32_t> kLengths = {4, 0, 3};

TEST(EmbeddingBagTest, GradientMatchesDifferences) {
  ParameterSet parameters(1);
  EmbeddingBag layer(parameters, "table", kBag);
  parameters.own_gradients();
  const std::vector<float> weights = random_values(3 * 19, 7);
  const auto f = [&] { return dot(layer.forward(kIds, kLengths), weights); };
  f();
  layer.backward(weights);
  expect_gradient(f, parameters[0].value(), parameters[0].gradient(), "table");
}

TEST(EmbeddingBagTest, TakesTheMeanOfTheWordsThatAreThere) {
  ParameterSet parameters(1);
  EmbeddingBag layer(parameters, "table",
                     {.texts = 2, .length = 3, .words = 4, .width = 1, .deviation = 1.0f});
  for (std::int32_t word = 0; word < 4; ++word) {
    parameters[0].row(word)[0] = static_cast<float>(word);
  }
  const auto y =
      layer.forward(std::vector<std::int32_t>{1, 2, 3, 3, 3, 3}, std::vector<std::int32_t>{2, 0});
  EXPECT_EQ(y[0], 1.5f);
  EXPECT_EQ(y[1], 0.0f);  // no division by zero
}

// A step has two passes. The rows must equal the gradient of the whole table.
TEST(EmbeddingBagTest, RowsAddUpToTheGradient) {
  ParameterSet whole(1);
  ParameterSet by_row(1);
  EmbeddingBag whole_layer(whole, "table", kBag);
  EmbeddingBag layer(by_row, "table", kBag);
  whole.own_gradients();
  by_row.use_rows();
  EXPECT_TRUE(by_row[0].gradient().empty());
  int completed = 0;
  by_row.on_gradient_ready([&](std::size_t) { ++completed; });
  for (ParameterSet* parameters : {&whole, &by_row}) parameters->accumulate(2);
  for (int step = 1; step <= 2; ++step) {
    for (const std::uint64_t seed : {7, 8}) {
      const std::vector<float> dy = random_values(3 * 19, seed);
      whole_layer.forward(kIds, kLengths);
      whole_layer.backward(dy);
      layer.forward(kIds, kLengths);
      layer.backward(dy);
    }
    EXPECT_EQ(completed, step);
    EXPECT_EQ(by_row[0].rows()->indices().size(), 2u * (4 + 3));
    const std::vector<float> sums = spread(by_row[0]);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      ASSERT_NEAR(sums[i], whole[0].gradient()[i], 1e-6f) << i;
    }
  }
}

}  // namespace
}  // namespace kolo::trainer
