// Tests updates of tables with row gradients.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "comm/base/error.h"
#include "tests/trainer/finite_difference.h"
#include "tests/trainer/small_data.h"
#include "trainer/optimizer/update_gate.h"

namespace kolo::trainer {
namespace {

constexpr std::size_t kRows = 5;
constexpr std::size_t kWidth = 9;

/// A table of ones, and the rows of its gradient.
struct TableOfOnes {
  explicit TableOfOnes(bool by_row) : parameters(1) {
    parameters.add_table("table", kRows, kWidth, {.mean = 1.0f});
    if (by_row) parameters.use_rows();
    parameters.own_gradients();
  }
  void contribute(const std::vector<std::int32_t>& rows, std::uint64_t seed) {
    parameters[0].begin_rows();
    const std::vector<float> values = random_values(kRows * kWidth, seed);
    for (const std::int32_t row : rows) {
      const std::size_t at = static_cast<std::size_t>(row) * kWidth;
      parameters[0].add_to_row(row, std::span(values).subspan(at, kWidth), 1.0f);
    }
    parameters[0].contributed();
  }
  std::vector<float> row(std::int32_t index) {
    const auto values = parameters[0].row(index);
    return {values.begin(), values.end()};
  }
  ParameterSet parameters;
};

class RowUpdateTest : public testing::TestWithParam<const char*> {
 protected:
  static constexpr OptimizerOptions kOptions{
      .momentum = 0.5f, .nesterov = true, .weight_decay = 0.1f, .decay_rules = {}};
};

TEST_P(RowUpdateTest, MovesRowsAsWholeGradientsDo) {
  TableOfOnes by_row(true);
  TableOfOnes whole(false);
  const auto optimizer = make_optimizer(GetParam(), by_row.parameters, kOptions);
  const auto reference = make_optimizer(GetParam(), whole.parameters, kOptions);
  for (const std::uint64_t step : {1, 2, 3}) {
    by_row.contribute({3, 0, 4, 1, 2}, step);
    whole.contribute({0, 1, 2, 3, 4}, step);
    EXPECT_NEAR(gradient_norm(by_row.parameters), gradient_norm(whole.parameters), 1e-5);
    optimizer->step(0.1f, 0.5f);
    reference->step(0.1f, 0.5f);
    // Bound: elements at the end of a row are computed one by one, with other roundings.
    for (std::size_t i = 0; i < kRows * kWidth; ++i) {
      ASSERT_NEAR(by_row.parameters[0].value()[i], whole.parameters[0].value()[i], 1e-6f) << i;
    }
  }
}

TEST_P(RowUpdateTest, LeavesOtherRowsAlone) {
  TableOfOnes table(true);
  const auto optimizer = make_optimizer(GetParam(), table.parameters, kOptions);
  table.contribute({0, 2}, 1);
  optimizer->step(0.1f, 1.0f);
  const std::vector<float> kept = table.row(2);
  table.contribute({0}, 2);
  optimizer->step(0.1f, 1.0f);
  EXPECT_EQ(table.row(2), kept);  // without momentum and decay
  EXPECT_EQ(table.row(1), std::vector<float>(kWidth, 1.0f));
  EXPECT_NE(table.row(0), std::vector<float>(kWidth, 1.0f));
}

INSTANTIATE_TEST_SUITE_P(Optimizers, RowUpdateTest, testing::Values("sgd", "adamw"),
                         [](const auto& tested) { return std::string(tested.param); });

// A row has no gradient in some steps. Its moments count only its own steps, but the bias
// correction counts all steps.
TEST(RowAdamWTest, MomentsRestWithTheirRow) {
  ParameterSet parameters(1);
  parameters.add_table("table", 2, 1, {});
  parameters.use_rows();
  const auto adamw =
      make_optimizer("adamw", parameters, {.beta1 = 0.9f, .beta2 = 0.99f, .epsilon = 1e-8f});
  for (const std::int32_t row : {0, 1, 0}) {
    parameters[0].begin_rows();
    parameters[0].add_to_row(row, std::vector<float>{2.0f}, 1.0f);
    parameters[0].contributed();
    adamw->step(0.1f, 1.0f);
  }
  // Steps 1 and 3: m = 0.2, then 0.38; v = 0.04, then 0.0796.
  const double third = 0.38 / (1 - 0.9 * 0.9 * 0.9) / std::sqrt(0.0796 / (1 - 0.99 * 0.99 * 0.99));
  EXPECT_NEAR(parameters[0].value()[0], -0.1 * (1.0 + third), 1e-5);
  // Step 2 only: m = 0.2 over 0.19, v = 0.04 over 0.0199.
  EXPECT_NEAR(parameters[0].value()[1], -0.1 * (0.2 / 0.19) / std::sqrt(0.04 / 0.0199), 1e-5);
}

TEST(RowOptimizersTest, ThoseThatTakeNormsOfTensorsRefuseRows) {
  TableOfOnes table(true);
  for (const char* name : {"lars", "lamb"}) {
    EXPECT_THAT(error_of([&] { make_optimizer(name, table.parameters, {}); }, ErrorCode::kConfig),
                testing::AllOf(testing::HasSubstr("the gradient of 'table' is rows"),
                               testing::HasSubstr("--row-gradients off")));
  }
}

}  // namespace
}  // namespace kolo::trainer
