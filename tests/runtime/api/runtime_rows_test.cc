// Tests row-sparse all-reduces of whole runtimes, with a thread per rank.

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <thread>

#include "tests/runtime/api/runtime_calls.h"
#include "tests/runtime/calls/row_sums/expected_rows.h"
#include "tests/support/calls/sum_rows.h"

namespace kolo::test {
namespace {

struct RowCase {
  RowTable table;
  std::size_t most_rows;
};

// Results have the bits of the definition, on every rank and for every seed. All ranks are on one
// node, where an all-reduce also adds in rank order.
TEST(RuntimeRows, AreSummedInTheOrderOfRanks) {
  const std::vector<RowCase> cases{{{.height = 50, .width = 3, .dtype = DType::kFloat32}, 20},
                                   {{.height = 1, .width = 1, .dtype = DType::kFloat32}, 7},
                                   {{.height = 5000, .width = 1, .dtype = DType::kFloat32}, 300},
                                   {{.height = 300, .width = 17, .dtype = DType::kFloat64}, 60},
                                   {{.height = 40, .width = 5, .dtype = DType::kBFloat16}, 30},
                                   {{.height = 40, .width = 5, .dtype = DType::kFloat16}, 30},
                                   {{.height = 40, .width = 2, .dtype = DType::kInt32}, 30},
                                   {{.height = 10, .width = 0, .dtype = DType::kFloat32}, 5},
                                   {{.height = 0, .width = 4, .dtype = DType::kFloat32}, 0}};
  Options options_of_job = test_options();
  options_of_job.arena_bytes = std::size_t{16} << 20;  // each call without a name has a plan
  for (const int ranks : {1, 3}) {
    RuntimeJob(ranks, options_of_job).run([&](Runtime& runtime) {
      RowSums sums;
      for (unsigned seed = 0; seed < 18; ++seed) {
        const auto& [table, most_rows] = cases[seed % cases.size()];
        for (const RowForm exchange : {RowForm::kAuto, RowForm::kRows, RowForm::kTable}) {
          for (const RowForm form : {RowForm::kAuto, RowForm::kRows, RowForm::kTable}) {
            if (exchange == RowForm::kTable && form == RowForm::kRows) continue;
            const ReduceOp op = seed % 2 == 0 ? ReduceOp::kSum : ReduceOp::kAverage;
            const bool is_scaled = seed % 3 == 1 && is_float(table.dtype);
            const Scales scales = is_scaled ? Scales{.before = 0.3, .after = 1.7} : Scales();
            const RowOptions options{
                .op = op, .result = form, .exchange = exchange, .scales = scales};
            std::vector<Rows> of_ranks;
            for (int rank = 0; rank < ranks; ++rank) {
              of_ranks.push_back(draw_rows(seed, rank, table, most_rows));
            }
            const Rows& mine = of_ranks[static_cast<std::size_t>(runtime.rank())];
            sum_rows(runtime, "rows", table, mine.indices, mine.elements.data(), sums, options);
            const Sums expected = expected_sums(of_ranks, table, op, scales);
            require_right(sums, expected, table, "seed " + std::to_string(seed));
            sum_rows(runtime, "", table, mine.indices, mine.elements.data(), sums, options);
            require_right(sums, expected, table, "background, seed " + std::to_string(seed));
            require(form == RowForm::kAuto || sums.is_table() == (form == RowForm::kTable),
                    "the form that was asked for");
          }
        }
      }
    });
  }
}

// Several operations run at the same time, begun in a different order on each rank, among others.
TEST(RuntimeRows, OfManyTicketsComeInAnyOrder) {
  RuntimeJob(3, test_options()).run([](Runtime& runtime) {
    const RowTable table{.height = 200, .width = 5, .dtype = DType::kFloat32};
    constexpr int kCalls = 6;
    std::vector<std::vector<Rows>> of_calls;
    for (unsigned call = 0; call < kCalls; ++call) {
      for (int rank = 0; rank < 3; ++rank) {
        of_calls.resize(call + 1);
        of_calls[call].push_back(draw_rows(call, rank, table, 90));
      }
    }
    std::map<int, Ticket> tickets;
    for (int i = 0; i < kCalls; ++i) {
      const int call = (i * (runtime.rank() == 1 ? 5 : 1) + runtime.rank()) % kCalls;
      const Rows& mine =
          of_calls[static_cast<std::size_t>(call)][static_cast<std::size_t>(runtime.rank())];
      const RowForm exchange = call % 2 == 0 ? RowForm::kRows : RowForm::kTable;
      tickets.emplace(
          call, runtime.sparse_all_reduce(
                    "call " + std::to_string(call),
                    TableRows{table, std::vector<std::int64_t>(mine.indices), mine.elements.data()},
                    {.exchange = exchange}));
    }
    all_reduce_works(runtime, "meanwhile");
    for (auto& [call, ticket] : tickets) {
      while (!ticket.wait_for(std::chrono::milliseconds(10))) {
      }
      require(ticket.done() && ticket.event() >= 0, "done");
      const auto& of_ranks = of_calls[static_cast<std::size_t>(call)];
      require_right(ticket.sums().front(), expected_sums(of_ranks, table, ReduceOp::kSum), table,
                    "call " + std::to_string(call));
      require(ticket.sums().front().rows().count == 0, "a result is given once");
    }
  });
}

// Calls with one name run one after the other, even if the program keeps no ticket or group.
TEST(RuntimeRows, OfOneNameRunInTheirOrder) {
  RuntimeJob(3, test_options()).run([](Runtime& runtime) {
    const RowTable table{.height = 8, .width = 1, .dtype = DType::kFloat32};
    const std::vector<std::int64_t> one{runtime.rank()};
    const std::vector<float> rows{1, 2, 3, 4};
    {
      Group all = runtime.group({2, 1, 0}, {.arena_bytes = std::size_t{1} << 17});
      const TableRows mine{table, one, rows.data()};
      const Ticket dropped = all.sparse_all_reduce("x", mine, {.exchange = RowForm::kRows});
    }
    std::vector<Ticket> tickets;
    for (const float& row : rows) {
      tickets.push_back(
          runtime.sparse_all_reduce("x", TableRows{table, one, &row},
                                    {.exchange = row == 3 ? RowForm::kTable : RowForm::kRows}));
    }
    for (std::size_t i = rows.size(); i-- > 0;) {
      const std::vector<RowSums> results = tickets[i].sums();
      const RowSums& sums = results.front();
      require(sums.is_table() == (i == 2), "the form of its call");
      require(static_cast<const float*>(sums.rows().data)[2] == rows[i], "the rows of its call");
    }
    runtime.barrier().wait();
  });
}

TEST(RuntimeRows, OfATicketFailAsOthersDo) {
  Texts texts(3);
  RuntimeJob(3, test_options()).run([&](Runtime& runtime) {
    const std::vector<std::int64_t> one{0};
    const std::vector<float> rows(4, 1);
    const std::size_t height = runtime.rank() == 2 ? 5 : 4;
    Ticket odd = runtime.sparse_all_reduce(
        "x", TableRows{{.height = height, .width = 2, .dtype = DType::kFloat32}, one, rows.data()});
    const std::string all = error_of([&] { odd.wait(); });
    require(
        runtime.sparse_all_reduce(
                   "x",
                   TableRows{{.height = 4, .width = 2, .dtype = DType::kFloat32}, one, rows.data()})
                .sums()
                .front()
                .rows()
                .count > 0,
        "the next use works");
    require(error_of([&] {
              runtime
                  .sparse_all_reduce("y",
                                     TableRows{{.height = 4, .width = 2, .dtype = DType::kFloat32},
                                               std::vector<std::int64_t>{4},
                                               rows.data()})
                  .wait();
            }).starts_with("usage: "),
            "misuse throws at the call");
    texts.set(runtime.rank(), all);
  });
  EXPECT_EQ(texts.all()[0], texts.all()[1]);
  EXPECT_EQ(texts.all()[0], texts.all()[2]);
  for (const char* part : {"mismatch: ", "float32 [5, 2]", "float32 [4, 2]"}) {
    EXPECT_NE(texts.all()[0].find(part), std::string::npos) << part << " in\n" << texts.all()[0];
  }
}

// A thread that waits for a ticket counts as waiting for its operation. Ranks that wait for each
// other are thus distinguished from slow ranks.
TEST(RuntimeRows, OfATicketThatOthersDoNotSubmitFailAtOnce) {
  Texts texts(2);
  RuntimeJob(2, test_options()).run([&](Runtime& runtime) {
    const std::vector<std::int64_t> one{0};
    const std::vector<float> row(2, 1);
    const std::string name = runtime.rank() == 0 ? "x" : "y";
    Ticket ticket = runtime.sparse_all_reduce(
        name, TableRows{{.height = 4, .width = 2, .dtype = DType::kFloat32}, one, row.data()});
    texts.set(runtime.rank(), error_of([&] { ticket.wait(); }));
  });
  for (const std::string& text : texts.all()) {
    EXPECT_TRUE(text.starts_with("mismatch: ")) << text;
    EXPECT_NE(text.find("'x'"), std::string::npos) << text;
    EXPECT_NE(text.find("'y'"), std::string::npos) << text;
  }
}

TEST(RuntimeRows, OfATicketFailWithTheJob) {
  Texts texts(3);
  RuntimeJob(3, test_options()).run([&](Runtime& runtime) {
    if (runtime.rank() == 1) return runtime.abort("has had enough");
    const std::vector<std::int64_t> one{0};
    const std::vector<float> row(2, 1);
    Ticket ticket = runtime.sparse_all_reduce(
        "x", TableRows{{.height = 4, .width = 2, .dtype = DType::kFloat32}, one, row.data()});
    texts.set(runtime.rank(), error_of([&] { ticket.wait(); }));
  });
  EXPECT_NE(texts.all()[0].find("rank 1: left the job: has had enough"), std::string::npos)
      << texts.all()[0];
  EXPECT_NE(texts.all()[2].find("rank 1: left the job: has had enough"), std::string::npos)
      << texts.all()[2];
}

TEST(RuntimeRows, OfOneIndexOnAllRanks) {
  RuntimeJob(4, test_options()).run([](Runtime& runtime) {
    const std::vector<std::int64_t> indices(100, 6);
    const std::vector<float> rows(200, 1);
    RowSums sums;
    sum_rows(runtime, "same", {.height = 7, .width = 2, .dtype = DType::kFloat32}, indices,
             rows.data(), sums, {.exchange = RowForm::kRows});
    require(sums.indices().size() == 1 && sums.indices()[0] == 6, "one index");
    const auto* const sum = static_cast<const float*>(sums.rows().data);
    require(sums.rows().count == 2 && sum[0] == 400 && sum[1] == 400, "one row");
  });
}

// A step's name extends the name of its call. Another operation may have the same name.
TEST(RuntimeRows, LeaveNamesToOtherOperations) {
  RuntimeJob(3, test_options()).run([](Runtime& runtime) {
    RowSums sums;
    const std::vector<std::int64_t> indices{runtime.rank(), 3};
    const std::vector<float> rows(8, 1);
    for (int turn = 0; turn < 3; ++turn) {
      for (const char* name : {"x: rows", "x: counts", "x: indices", "x: sums", "x: table"}) {
        all_reduce_works(runtime, name);
      }
      sum_rows(runtime, "x", {.height = 4, .width = 4, .dtype = DType::kFloat32}, indices,
               rows.data(), sums, {.exchange = turn == 1 ? RowForm::kTable : RowForm::kRows});
      require(turn == 1 || sums.indices().size() == 4, "indices");
    }
  });
}

TEST(RuntimeRows, MisuseThrowsAtTheCall) {
  RuntimeJob(2, test_options()).run([](Runtime& runtime) {
    RowSums sums;
    const std::vector<float> rows(4, 1);
    const auto misuse = [&](const RowTable& table, const std::vector<std::int64_t>& indices,
                            const void* data, const RowOptions& options, const char* part) {
      const std::string error =
          error_of([&] { sum_rows(runtime, "x", table, indices, data, sums, options); });
      require(error.starts_with("usage: ") && error.find(part) != std::string::npos, error);
    };
    misuse({.height = 4, .width = 2, .dtype = DType::kFloat32}, {0, 4}, rows.data(), {},
           "index 4 at position 1");
    misuse({.height = 4, .width = 2, .dtype = DType::kFloat32}, {-2}, rows.data(), {},
           "index -2 at position 0");
    misuse({.height = 4, .width = 2, .dtype = DType::kFloat32}, {0}, nullptr, {}, "null");
    misuse({.height = 4, .width = 2, .dtype = DType::kFloat32}, {0}, rows.data(),
           {.op = ReduceOp::kMax}, "sum or average");
    misuse({.height = 4, .width = 2, .dtype = DType::kBool}, {0}, rows.data(), {}, "numbers");
    misuse({.height = 4, .width = 2, .dtype = DType::kInt32}, {0}, rows.data(),
           {.scales = {.before = 2}}, "elements of int32 cannot be scaled");
    misuse({.height = 4, .width = 2, .dtype = DType::kFloat32}, {0}, rows.data(),
           {.result = RowForm::kRows, .exchange = RowForm::kTable}, "does not tell");
    sum_rows(runtime, "x", {.height = 4, .width = 2, .dtype = DType::kFloat32},
             std::vector<std::int64_t>{1}, rows.data(), sums);
  });
}

// Two threads of each rank use two names at the same time, also in a group.
TEST(RuntimeRows, OfSeveralThreads) {
  RuntimeJob(3, test_options()).run([](Runtime& runtime) {
    const GroupOptions options{.arena_bytes = std::size_t{1} << 17};
    Group pair = runtime.rank() < 2 ? runtime.group({1, 0}, options) : runtime.group({2}, options);
    std::atomic<bool> failed{false};
    const auto work = [&](Group& group, const std::string& name) {
      try {
        const RowTable table{.height = 30, .width = 3, .dtype = DType::kFloat32};
        RowSums sums;
        for (unsigned seed = 0; seed < 10; ++seed) {
          std::vector<Rows> of_ranks;
          for (int rank = 0; rank < group.size(); ++rank) {
            of_ranks.push_back(draw_rows(seed, rank, table, 20));
          }
          const Rows& mine = of_ranks[static_cast<std::size_t>(group.rank())];
          sum_rows(group, name, table, mine.indices, mine.elements.data(), sums,
                   {.exchange = RowForm::kRows});
          require_right(sums, expected_sums(of_ranks, table, ReduceOp::kSum), table, name);
        }
      } catch (const std::exception& e) {
        failed = true;
      }
    };
    std::thread a(work, std::ref<Group>(runtime), "a");
    std::thread b(work, std::ref<Group>(runtime), "b");
    work(pair, "a");
    a.join();
    b.join();
    require(!failed, "a thread has failed");
  });
}

TEST(RuntimeRows, AreNotThoseOfTheResultThatIsUsedAgain) {
  RuntimeJob(1, test_options()).run([](Runtime& runtime) {
    const RowTable table{.height = 4, .width = 2, .dtype = DType::kFloat32};
    const std::vector<std::int64_t> indices{0, 3};
    const std::vector<float> rows{1, 2, 3, 4};
    RowSums sums, others;
    const auto sum_up = [&](const void* from, RowSums& to) {
      sum_rows(runtime, "x", table, indices, from, to, {.result = RowForm::kRows});
    };
    sum_up(rows.data(), sums);
    const std::string error = error_of([&] { sum_up(sums.rows().data, sums); });
    require(error.starts_with("usage") && error.find("rows of table 0 are in") != error.npos,
            error);
    sum_up(rows.data(), sums);
    sum_up(sums.rows().data, others);
    require(static_cast<const float*>(others.rows().data)[3] == 4, "the last element");
  });
}

// --- Several tables ------------------------------------------------------------------------------

/// Rows of several tables on each rank, and their sums.
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
  options_of_job.arena_bytes = std::size_t{16} << 20;  // each call without a name has plans
  for (const int ranks : {1, 3}) {
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

// Each rank has few rows of a large table, and all rows of a small one.
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
