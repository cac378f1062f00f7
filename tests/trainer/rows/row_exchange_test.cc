// Tests averages of row gradients over ranks, which are threads.

#include "trainer/loop/parameter_exchange.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "tests/support/runtime_job.h"

namespace kolo::trainer {
namespace {

using Rows = std::map<std::int64_t, std::vector<float>>;

/// Averages the contributions of all ranks to a table [height, 2]. All ranks must get the result.
Rows average(std::size_t height,
             const std::vector<std::vector<std::pair<std::int32_t, float>>>& contributions) {
  const int ranks = static_cast<int>(contributions.size());
  test::RuntimeJob job(ranks, {.calibrate = "off"});
  std::vector<Rows> results(contributions.size());
  test::run_ranks(ranks, [&](const test::RankRun& run) {
    const auto rank = static_cast<std::size_t>(run.rank());
    Runtime runtime = job.join(run.rank());
    ParameterSet parameters(1);
    Parameter& table = parameters.add_table("table", height, 2, {});
    parameters.use_rows();
    RowExchange exchange(runtime, parameters);
    for (int step = 0; step < 2; ++step) {  // the second step reuses memory
      table.begin_rows();
      for (const auto& [row, value] : contributions[rank]) {
        table.add_to_row(row, std::vector<float>{value, -value}, 1.0f);
      }
      table.contributed();
      exchange.begin(0);
      exchange.finish();
      results[rank].clear();
      for (std::size_t i = 0; i < table.rows()->indices().size(); ++i) {
        const auto values = table.rows()->values(i);
        results[rank][table.rows()->indices()[i]].assign(values.begin(), values.end());
      }
      EXPECT_EQ(results[rank].size(), table.rows()->indices().size());  // each row once
    }
    runtime.close();
  });
  for (const Rows& result : results) EXPECT_EQ(result, results[0]);
  return results[0];
}

// The table is so small that it is sent whole, or so large that only its rows are sent.
class RowExchangeTest : public testing::TestWithParam<std::size_t> {};

TEST_P(RowExchangeTest, AveragesTheRowsOfAllRanks) {
  const Rows rows = average(GetParam(), {{{5, 1.0f}, {2, 3.0f}, {5, 0.5f}}, {{5, 2.5f}}});
  EXPECT_EQ(rows, (Rows{{2, {1.5f, -1.5f}}, {5, {2.0f, -2.0f}}}));
}

TEST_P(RowExchangeTest, RanksWithoutRowsCount) {
  const Rows rows = average(GetParam(), {{}, {{0, 3.0f}}, {}});
  EXPECT_EQ(rows, (Rows{{0, {1.0f, -1.0f}}}));
}

TEST_P(RowExchangeTest, RowsWhoseAverageIsZeroAreLeftOut) {
  const Rows rows = average(GetParam(), {{{1, 2.0f}, {3, 1.0f}}, {{1, -2.0f}, {4, 0.0f}}});
  EXPECT_EQ(rows, (Rows{{3, {0.5f, -0.5f}}}));
}

TEST_P(RowExchangeTest, OneRankAddsUpItsRows) {
  const Rows rows = average(GetParam(), {{{1, 2.0f}, {1, 0.5f}}});
  EXPECT_EQ(rows, (Rows{{1, {2.5f, -2.5f}}}));
}

INSTANTIATE_TEST_SUITE_P(Heights, RowExchangeTest, testing::Values(8, 2'000'000));

}  // namespace
}  // namespace kolo::trainer
