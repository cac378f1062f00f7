// Tests row-sparse sums in device memory, for any interleaving: the library moves rows to be added.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "runtime/calls/row_sums/row_reduction.h"
#include "tests/runtime/calls/row_sums/expected_rows.h"
#include "tests/runtime/device/counted_job.h"
#include "tests/support/device/host_stream.h"
#include "tests/support/engine_job.h"
#include "tests/support/node_shapes.h"

namespace kolo {
namespace {

using test::EngineJob;
using test::Rows;

RowTable on_device(std::size_t height, std::size_t width, DType dtype = DType::kFloat32) {
  return {.height = height, .width = width, .dtype = dtype, .memory = MemoryKind::kDevice};
}

/// A rank's rows of one table. The rank's stream writes them after the call.
struct LateRows {
  DeviceMemory pinned, memory;
};

/// A job that counts the calls of rank 0 to the library.
class RowsJob {
 public:
  RowsJob(const std::vector<int>& nodes, std::uint64_t seed)
      : job(ProcessGrid::with_node_sizes(nodes), options_, seed,
            test::JobDevices{.wrap = [this](int rank, const std::string& of,
                                            std::unique_ptr<DeviceCommunicator> group) {
              return counter_.wrap(rank, of, std::move(group));
            }}) {
    for (int rank = 0; rank < ranks(); ++rank) {
      streams_.push_back(job.device(rank).make_stream());
      results_.emplace_back();
    }
  }

  int ranks() const { return job.world_size(); }

  /// Sums these rows, given by table and rank. `results()` then returns the results of all ranks.
  void run(const std::vector<RowTable>& tables, const std::vector<std::vector<Rows>>& rows,
           const RowOptions& options, const std::string& name) {
    std::vector<std::shared_ptr<RowReduction>> calls;
    std::vector<LateRows> late;
    for (int rank = 0; rank < ranks(); ++rank) {
      std::vector<TableRows> given;
      for (std::size_t i = 0; i < tables.size(); ++i) {
        const Rows& mine = rows[i][static_cast<std::size_t>(rank)];
        late.push_back(write_late(rank, mine));
        given.push_back(
            {.table = tables[i], .indices = mine.indices, .rows = late.back().memory.data()});
      }
      auto& results = results_[static_cast<std::size_t>(rank)];
      results.resize(tables.size());
      calls.push_back(std::make_shared<RowReduction>(
          PlanInputs{.rank = rank, .grid = job.grid(), .options = options_, .costs = costs_}, name,
          given, options, results,
          RowDevice{.device = &job.device(rank), .stream = NativeStream{&stream(rank)}}));
      job.engine(rank).submit(std::shared_ptr<CompositeOp>(calls.back()));
    }
    job.run_until(
        [&] { return std::ranges::all_of(calls, [](const auto& call) { return call->done(); }); });
    for (std::size_t rank = 0; rank < calls.size(); ++rank) {
      calls[rank]->wait(std::chrono::milliseconds(1));
      results_[rank] = calls[rank]->take();
    }
  }

  std::vector<std::vector<RowSums>>& results() { return results_; }

  HostStream& stream(int rank) { return as_host(*streams_[static_cast<std::size_t>(rank)]); }

  /// Returns the calls of rank 0 since the previous `calls()`.
  std::uint64_t calls() { return counter_.calls(); }

 private:
  LateRows write_late(int rank, const Rows& rows) {
    Device& device = job.device(rank);
    const std::size_t bytes = std::max<std::size_t>(rows.elements.size(), 1);
    LateRows late{.pinned = device.allocate(bytes, MemoryKind::kPinned),
                  .memory = device.allocate(bytes, MemoryKind::kDevice)};
    std::ranges::copy(rows.elements, late.pinned.data());
    const auto view = [&](const DeviceMemory& memory) {
      return BufferView{memory.data(), bytes, DType::kUInt8, memory.kind()};
    };
    streams_[static_cast<std::size_t>(rank)]->copy(view(late.memory), view(late.pinned));
    return late;
  }

  const Options options_{.verify_schedules = true};
  const LinkCosts costs_;
  test::CallCounter counter_;

 public:
  EngineJob job;

 private:
  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<std::vector<RowSums>> results_;  // by rank and table; reused
};

std::vector<std::vector<Rows>> draw(unsigned seed, const std::vector<RowTable>& tables, int ranks,
                                    std::size_t most) {
  std::vector<std::vector<Rows>> rows(tables.size());
  for (std::size_t i = 0; i < tables.size(); ++i) {
    for (int rank = 0; rank < ranks; ++rank) {
      rows[i].push_back(
          test::draw_rows(seed + 1000 * static_cast<unsigned>(i), rank, tables[i], most));
    }
  }
  return rows;
}

TEST(DeviceRows, AreSummedInTheOrderOfRanks) {
  const std::vector<std::vector<RowTable>> cases = {
      {on_device(50, 3)},
      {on_device(40, 5, DType::kBFloat16), on_device(7, 16, DType::kBFloat16)},
      {on_device(300, 17, DType::kFloat64)},
      {on_device(40, 2, DType::kInt32), on_device(1, 1, DType::kInt32)},
      {on_device(10, 0)},
      {on_device(0, 4)}};
  for (const std::vector<int>& nodes :
       {std::vector<int>{1}, std::vector<int>{3}, std::vector<int>{2, 2}}) {
    RowsJob job(nodes, 5);
    for (unsigned seed = 0; seed < 4 * cases.size(); ++seed) {
      const std::size_t round = seed / cases.size();
      const std::vector<RowTable>& tables = cases[seed % cases.size()];
      for (const RowForm exchange : {RowForm::kAuto, RowForm::kRows, RowForm::kTable}) {
        for (const RowForm form : {RowForm::kAuto, RowForm::kRows, RowForm::kTable}) {
          if (exchange == RowForm::kTable && form == RowForm::kRows) continue;
          const bool is_scaled = round >= 2 && is_float(tables.front().dtype);
          // The library rounds sums before they are multiplied. A factor of 2 adds no error.
          const RowOptions options{
              .op = round % 2 == 0 ? ReduceOp::kSum : ReduceOp::kAverage,
              .result = form,
              .exchange = exchange,
              .scales = is_scaled ? Scales{.before = 0.3, .after = 2} : Scales()};
          const std::string what = test::shape_text(nodes) + ", " +
                                   to_string(RowCall{.tables = tables, .options = options}) +
                                   ", seed " + std::to_string(seed);
          SCOPED_TRACE(what);
          const auto rows = draw(seed, tables, job.ranks(), 30);
          job.run(tables, rows, options, "x");
          for (std::size_t i = 0; i < tables.size(); ++i) {
            const test::Sums expected =
                test::expected_sums(rows[i], tables[i], options.op, options.scales);
            for (auto& results : job.results()) {
              ASSERT_EQ(results[i].rows().memory, MemoryKind::kDevice);
              ASSERT_NO_THROW(test::require_right(results[i], expected, tables[i], what));
            }
          }
        }
      }
    }
  }
}

TEST(DeviceRows, AreMovedByTheLibraryFromMemoryThatIsUsedAgain) {
  const std::vector<RowTable> tables{on_device(64, 256), on_device(64, 128)};
  RowsJob job({2}, 3);
  const auto rows = draw(1, tables, 2, 40);
  job.run(tables, rows, {.exchange = RowForm::kRows}, "rows");
  EXPECT_EQ(job.calls(), 4U);  // for each table, to owners and to all ranks
  job.run(tables, rows, {.exchange = RowForm::kTable}, "tables");
  EXPECT_EQ(job.calls(), 2U);
  const AllocationCounts before = job.job.device(0).allocation_counts();
  job.run(tables, rows, {.exchange = RowForm::kRows}, "rows");
  job.run(tables, rows, {.exchange = RowForm::kTable}, "tables");
  const AllocationCounts after = job.job.device(0).allocation_counts();
  const std::size_t of_the_test = 2 * 2 * tables.size();
  EXPECT_EQ(after.allocations - before.allocations, of_the_test);
  EXPECT_EQ(after.streams, before.streams);
  EXPECT_EQ(after.events, before.events);
}

TEST(DeviceRows, AreNotReplacedWhileTheStreamOfARankWithoutRowsReadsThem) {
  const std::vector<RowTable> tables{on_device(8, 1, DType::kInt32)};
  const RowOptions as_rows{.result = RowForm::kRows, .exchange = RowForm::kRows};
  const auto rows_of = [](std::vector<std::int32_t> numbers) {
    Rows rows;
    const auto bytes = std::as_bytes(std::span(numbers));
    rows.elements.assign(bytes.begin(), bytes.end());
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      rows.indices.push_back(static_cast<std::int64_t>(i));
    }
    return rows;
  };
  RowsJob job({2}, 3);
  job.run(tables, {{rows_of({1, 2, 3}), rows_of({10, 20, 30})}}, as_rows, "x");
  const BufferView sums = job.results()[1].front().rows();
  ASSERT_EQ(sums.count, 3U);
  std::vector<std::int32_t> read(sums.count);
  bool is_read = false;
  job.stream(1).enqueue([left = 20'000]() mutable { return left-- == 0; });
  job.stream(1).enqueue([&, data = sums.data] {
    std::memcpy(read.data(), data, read.size() * sizeof(std::int32_t));
    is_read = true;
    return true;
  });
  job.run(tables, {{rows_of({7, 8, 9}), rows_of({})}}, as_rows, "x");
  while (!is_read) job.job.device(1).step();
  EXPECT_EQ(read, (std::vector<std::int32_t>{11, 22, 33}));
}

TEST(DeviceRows, SayWhatIsWrong) {
  const Options options;
  const LinkCosts costs;
  const ProcessGrid grid = ProcessGrid::with_node_sizes({1});
  const std::vector<std::int64_t> one{0};
  const std::vector<float> row(4, 1);
  const auto error_of = [&](const std::vector<RowTable>& tables) -> std::string {
    std::vector<TableRows> given;
    for (const RowTable& table : tables) {
      given.push_back({.table = table, .indices = one, .rows = row.data()});
    }
    std::vector<RowSums> results(tables.size());
    try {
      const RowReduction call({.rank = 0, .grid = grid, .options = options, .costs = costs}, "x",
                              given, {}, results);
    } catch (const UsageError& e) {
      return e.what();
    }
    return "";
  };
  const RowTable here{.height = 3, .width = 4, .dtype = DType::kFloat32};
  RowTable pinned = here;
  pinned.memory = MemoryKind::kPinned;
  EXPECT_EQ(error_of({here}), "");
  EXPECT_NE(error_of({on_device(3, 4)}).find("set the option `device`"), std::string::npos);
  EXPECT_NE(error_of({here, on_device(3, 4)}).find("memory of one kind"), std::string::npos);
  EXPECT_NE(error_of({pinned}).find("pinned memory is host memory"), std::string::npos);
}

}  // namespace
}  // namespace kolo
