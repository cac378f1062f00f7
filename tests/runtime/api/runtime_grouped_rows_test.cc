// Row-sparse all-reduces of several tables of whole runtimes, each rank a thread.

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/runtime/api/runtime_calls.h"
#include "tests/runtime/calls/rows/expected_rows.h"

namespace kolo::test {
namespace {

/// Rows of several tables that each rank has, and their sums.
class Tables {
 public:
  Tables(std::vector<RowTable> tables, int ranks, unsigned seed) : tables_(std::move(tables)) {
    for (unsigned i = 0; i < tables_.size(); ++i) {
      of_tables_.emplace_back();
      for (int rank = 0; rank < ranks; ++rank) {
        of_tables_[i].push_back(draw_rows(10 * seed + i, rank, tables_[i], 10 * (i + 1)));
      }
    }
  }

  std::vector<TableRows> of(int rank) const {
    std::vector<TableRows> given;
    for (std::size_t i = 0; i < tables_.size(); ++i) {
      const Rows& rows = of_tables_[i][static_cast<std::size_t>(rank)];
      given.push_back({.table = tables_[i], .indices = rows.indices, .rows = rows.elements.data()});
    }
    return given;
  }

  void require_sums(const std::vector<RowSums>& sums, const RowOptions& options,
                    const std::string& what) const {
    require(sums.size() == tables_.size(), what + ": as many results as tables");
    for (std::size_t i = 0; i < sums.size(); ++i) {
      require_right(sums[i], expected_sums(of_tables_[i], tables_[i], options.op, options.scales),
                    tables_[i], what + ", table " + std::to_string(i));
    }
  }

 private:
  std::vector<RowTable> tables_;
  std::vector<std::vector<Rows>> of_tables_;
};

std::vector<RowTable> tables_of(DType dtype) {
  return {{.height = 50, .width = 3, .dtype = dtype},
          {.height = 1, .width = 1, .dtype = dtype},
          {.height = 0, .width = 4, .dtype = dtype},
          {.height = 20, .width = 0, .dtype = dtype},
          {.height = 4000, .width = 7, .dtype = dtype}};
}

TEST(RuntimeGroupedRows, GiveEachTableWhatItAloneWouldGet) {
  Options options_of_job = test_options();
  options_of_job.arena_bytes = std::size_t{16} << 20;  // Each call without a name has plans.
  for (const int ranks : {1, 2, 5}) {
    RuntimeJob(ranks, options_of_job).run([&](Runtime& runtime) {
      std::vector<RowSums> sums;
      for (unsigned seed = 0; seed < 4; ++seed) {
        const DType dtype = seed % 2 == 0 ? DType::kFloat32 : DType::kBFloat16;
        const Tables tables(tables_of(dtype), ranks, seed);
        for (const RowForm exchange : {RowForm::kAuto, RowForm::kRows, RowForm::kTable}) {
          for (const RowForm form : {RowForm::kAuto, RowForm::kRows, RowForm::kTable}) {
            if (exchange == RowForm::kTable && form == RowForm::kRows) continue;
            const RowOptions options{.op = seed < 2 ? ReduceOp::kSum : ReduceOp::kAverage,
                                     .result = form,
                                     .exchange = exchange,
                                     .scales = {.before = seed == 3 ? 0.3 : 1, .after = 1.7}};
            const std::vector<TableRows> mine = tables.of(runtime.rank());
            for (const char* name : {"tables", ""}) {
              sums = runtime.sparse_all_reduce(name, mine, options, std::move(sums)).sums();
              tables.require_sums(sums, options, "seed " + std::to_string(seed));
            }
          }
        }
      }
    });
  }
}

// Few rows of a large table, and all rows of a small one.
TEST(RuntimeGroupedRows, GiveEachTableItsOwnExchange) {
  RuntimeJob(2, test_options()).run([](Runtime& runtime) {
    const std::vector<std::int64_t> one{runtime.rank()}, all{0, 1, 2, 3};
    const std::vector<float> rows(4 * 64, 1);
    const TableRows tables[] = {
        {.table = {.height = 4, .width = 64, .dtype = DType::kFloat32},
         .indices = all,
         .rows = rows.data()},
        {.table = {.height = 100'000, .width = 64, .dtype = DType::kFloat32},
         .indices = one,
         .rows = rows.data()}};
    std::vector<RowSums> sums;
    for (int turn = 0; turn < 3; ++turn) {
      sums = runtime.sparse_all_reduce("mixed", tables, {}, std::move(sums)).sums();
      require(!sums[0].exchanged_rows() && sums[0].is_table(), "all rows of a small table");
      require(sums[1].exchanged_rows() && sums[1].indices().size() == 2, "few rows of a large one");
      require(static_cast<const float*>(sums[0].rows().data)[255] == 2, "a sum of both ranks");
      require(static_cast<const float*>(sums[1].rows().data)[127] == 1, "a row of one rank");
    }
  });
}

// The counts of rows of one call differ from those of the last, and other operations run meanwhile.
TEST(RuntimeGroupedRows, OfManyTicketsComeInAnyOrder) {
  RuntimeJob(3, test_options()).run([](Runtime& runtime) {
    std::vector<Tables> calls;
    for (unsigned call = 0; call < 4; ++call) {
      calls.emplace_back(tables_of(DType::kFloat64), runtime.size(), call);
    }
    std::vector<Ticket> tickets;
    for (const Tables& call : calls) {
      tickets.push_back(runtime.sparse_all_reduce("tables", call.of(runtime.rank()),
                                                  {.exchange = RowForm::kRows}));
    }
    all_reduce_works(runtime, "meanwhile");
    for (std::size_t i = calls.size(); i-- > 0;) {
      calls[i].require_sums(tickets[i].sums(), {}, "call " + std::to_string(i));
      require(tickets[i].sums()[0].rows().count == 0, "results are given once");
    }
  });
}

TEST(RuntimeGroupedRows, MismatchesAreTheSameErrorOnAllRanks) {
  Texts texts(3);
  RuntimeJob(3, test_options()).run([&](Runtime& runtime) {
    const std::vector<std::int64_t> one{0};
    const std::vector<float> row(8, 1);
    const TableRows first{.table = {.height = 4, .width = 2, .dtype = DType::kFloat32},
                          .indices = one,
                          .rows = row.data()};
    TableRows second{.table = {.height = 9, .width = 8, .dtype = DType::kFloat32},
                     .indices = one,
                     .rows = row.data()};
    std::string all;
    const auto call = [&](const std::vector<TableRows>& tables) {
      all += error_of([&] { runtime.sparse_all_reduce("x", tables).wait(); });
    };
    const bool is_odd = runtime.rank() == 1;
    call(is_odd ? std::vector{first} : std::vector{first, second});
    call(is_odd ? std::vector{second, first} : std::vector{first, second});
    second.table.height = is_odd ? 10 : 9;
    call({first, second});
    second.table.height = 9;
    runtime.sparse_all_reduce("x", std::vector{first, second}).wait();
    texts.set(runtime.rank(), all);
  });
  EXPECT_EQ(texts.all()[0], texts.all()[1]);
  EXPECT_EQ(texts.all()[0], texts.all()[2]);
  for (const char* part :
       {"mismatch: ", "'x': sparse_all_reduce float32 [4, 2] + [9, 8] sum, result auto",
        "'x': sparse_all_reduce float32 [4, 2] sum", "[9, 8] + [4, 2]", "[4, 2] + [10, 8]"}) {
    EXPECT_NE(texts.all()[0].find(part), std::string::npos) << part << " in\n" << texts.all()[0];
  }
}

TEST(RuntimeGroupedRows, MisuseThrowsAtTheCall) {
  RuntimeJob(2, test_options()).run([](Runtime& runtime) {
    const std::vector<std::int64_t> one{0}, outside{3, 4};
    const std::vector<float> row(8, 1);
    const TableRows fine{.table = {.height = 4, .width = 2, .dtype = DType::kFloat32},
                         .indices = one,
                         .rows = row.data()};
    const auto misuse = [&](const std::vector<TableRows>& tables, std::size_t results,
                            const char* part) {
      const std::string error = error_of([&] {
        runtime.sparse_all_reduce("x", tables, {}, std::vector<RowSums>(results)).wait();
      });
      require(error.starts_with("usage: ") && error.find(part) != std::string::npos, error);
    };
    TableRows other = fine;
    misuse({}, 0, "there are no tables");
    misuse({fine, fine}, 1, "memory of 1 results for 2 tables");
    other.indices = outside;
    misuse({fine, other}, 2, "table 1 of 'x': index 4 at position 1");
    other.rows = nullptr;
    other.indices = one;
    misuse({fine, other}, 2, "table 1 of 'x': a buffer is null");
    other = fine;
    other.table.dtype = DType::kFloat64;
    misuse({fine, other}, 2, "tables of float32 and of float64");
    all_reduce_works(runtime, "y");
  });
}

}  // namespace
}  // namespace kolo::test
