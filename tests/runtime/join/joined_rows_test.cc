// Tests row-sparse sums for which some ranks have no more data.

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "runtime/calls/row_sums/row_reduction.h"
#include "tests/runtime/join/joined_job.h"
#include "tests/support/node_shapes.h"

namespace kolo::joined {
namespace {

constexpr std::size_t kHeight = 9, kWidth = 3;

RowTable table_in(MemoryKind memory) {
  return {.height = kHeight, .width = kWidth, .dtype = DType::kFloat32, .memory = memory};
}

/// One rank's call on two tables with the same rows. Its memory outlives the call.
class RowsCall {
 public:
  RowsCall(EngineJob& job, const Options& options, const LinkCosts& costs, int rank, int use,
           const RowOptions& row_options, MemoryKind memory)
      : indices_(indices_of(rank, use)), rows_(indices_.size() * kWidth, value_of(rank)) {
    const TableRows mine{.table = table_in(memory), .indices = indices_, .rows = rows_.data()};
    RowDevice device;
    if (memory == MemoryKind::kDevice) device.device = &job.device(rank);
    const std::vector<TableRows> tables{mine, mine};
    std::vector<RowSums> results(tables.size());
    call_ = std::make_shared<RowReduction>(
        PlanInputs{.rank = rank, .grid = job.grid(), .options = options, .costs = costs}, "x",
        tables, row_options, results, device);
    job.engine(rank).submit(std::shared_ptr<CompositeOp>(call_));
  }

  bool done() const { return call_->done(); }

  /// Checks the resulting table. The `active` ranks had rows.
  void check(const std::vector<int>& active, int use, int ranks, ReduceOp op) {
    call_->wait(std::chrono::milliseconds(1));
    std::vector<float> expected(kHeight, 0);
    for (const int rank : active) {
      for (const std::int64_t index : indices_of(rank, use)) {
        expected[static_cast<std::size_t>(index)] += value_of(rank);
      }
    }
    for (float& value : expected) {
      if (op == ReduceOp::kAverage) value /= static_cast<float>(ranks);
    }
    for (const RowSums& sums : call_->take()) EXPECT_EQ(table_of(sums), expected);
  }

 private:
  /// Returns the first element of each row.
  static std::vector<float> table_of(const RowSums& sums) {
    std::vector<float> table(kHeight, 0);
    for (std::size_t i = 0; i < sums.rows().count / kWidth; ++i) {
      const std::size_t row = sums.is_table() ? i : static_cast<std::size_t>(sums.indices()[i]);
      table[row] = static_cast<const float*>(sums.rows().data)[i * kWidth];
    }
    return table;
  }
  static std::vector<std::int64_t> indices_of(int rank, int use) {
    return {(rank + use) % 9, (2 * rank + use) % 9, 4};
  }
  static float value_of(int rank) { return static_cast<float>(1 << rank); }

  std::vector<std::int64_t> indices_;
  std::vector<float> rows_;
  std::shared_ptr<RowReduction> call_;
};

/// Rank r has data for r uses of one name. Some ranks begin several uses at the same time.
void run_rows(const std::vector<int>& nodes, const RowOptions& row_options, MemoryKind memory,
              unsigned seed) {
  const Options with = options();
  const LinkCosts costs = parse_link_costs(with.link_costs);
  std::optional<test::JobDevices> devices;
  if (memory == MemoryKind::kDevice) devices.emplace();
  EngineJob job(ProcessGrid::with_node_sizes(nodes), with, seed, devices);
  std::mt19937 random(seed);
  const int ranks = job.world_size();
  struct Rank {
    std::vector<std::unique_ptr<RowsCall>> calls = {};
    std::shared_ptr<JoinTicket> ticket = {};
  };
  std::vector<Rank> all(static_cast<std::size_t>(ranks));
  const bool at_once = seed % 2 == 0;
  const auto move = [&](int number) {
    Rank& rank = all[static_cast<std::size_t>(number)];
    if (rank.ticket) return rank.ticket->done();
    const bool waits = !rank.calls.empty() && !rank.calls.back()->done();
    if (waits && !at_once) return false;
    const int use = static_cast<int>(rank.calls.size());
    if (use == number) {
      rank.ticket = join(job, number);  // the rank's calls may still be in flight
    } else {
      rank.calls.push_back(
          std::make_unique<RowsCall>(job, with, costs, number, use, row_options, memory));
    }
    return false;
  };
  for (int epoch = 0; epoch < 2; ++epoch) {
    job.run_until([&] {
      bool is_over = true;
      for (int rank = 0; rank < ranks; ++rank) is_over &= move(rank);
      return is_over;
    });
    for (int number = 0; number < ranks; ++number) {
      Rank& rank = all[static_cast<std::size_t>(number)];
      EXPECT_EQ(outcome(*rank.ticket), outcome(*all[0].ticket));
      for (int use = 0; use < number; ++use) {
        std::vector<int> active;
        for (int each = use + 1; each < ranks; ++each) active.push_back(each);
        rank.calls[static_cast<std::size_t>(use)]->check(active, use, ranks, row_options.op);
      }
    }
    for (Rank& rank : all) rank = {};
  }
  EXPECT_EQ(job.close(), "");
}

void run_all(MemoryKind memory) {
  const RowOptions all_options[] = {
      {}, {.exchange = RowForm::kRows}, {.op = ReduceOp::kAverage, .exchange = RowForm::kTable}};
  for (const std::vector<int>& nodes : kShapes) {
    for (const RowOptions& row_options : all_options) {
      for (unsigned seed = 0; seed < seeds(4); ++seed) {
        const RowTable table = table_in(memory);
        SCOPED_TRACE(test::shape_text(nodes) + ", " +
                     to_string(RowCall{.tables = {table, table}, .options = row_options}) +
                     ", seed " + std::to_string(seed));
        run_rows(nodes, row_options, memory, seed);
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(JoinedRows, AreNone) { run_all(MemoryKind::kHost); }
TEST(JoinedRows, AreNoneInDeviceMemory) { run_all(MemoryKind::kDevice); }

}  // namespace
}  // namespace kolo::joined
