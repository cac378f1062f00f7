// Tests row-sparse sums, messages and groups about which ranks disagree.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "comm/message/messages.h"
#include "runtime/calls/row_sums/row_reduction.h"
#include "tests/runtime/mismatch/mismatch_job.h"
#include "tests/support/message_calls.h"

namespace kolo::mismatch {
namespace {

using ::testing::HasSubstr;

// --- Rows ---------------------------------------------------------------------------------------

struct RowTerms {
  RowCall call = {.tables = {{.height = 4, .width = 2, .dtype = DType::kFloat32},
                             {.height = 3, .width = 2, .dtype = DType::kFloat32}},
                  .options = {}};
  bool is_all_reduce = false;
};

const std::vector<Field<RowTerms>>& row_fields() {
  using Terms = RowTerms;
  const auto text = [](const Terms& terms, int) {
    if (terms.is_all_reduce) return std::string("'x': all_reduce float32 [10] sum");
    constexpr const char* kForms[] = {"auto", "rows", "table"};
    const auto& [tables, options] = terms.call;
    std::vector<std::string> shapes;
    for (const RowTable& table : tables) {
      shapes.push_back(fmt::format("[{}, {}]", table.height, table.width));
    }
    return fmt::format(
        "'x': sparse_all_reduce {} {} {}, result {}, exchange {}", to_string(tables[0].dtype),
        fmt::join(shapes, " + "), describe(options.op, options.scales),
        kForms[static_cast<int>(options.result)], kForms[static_cast<int>(options.exchange)]);
  };
  static const std::vector<Field<Terms>> all = {
      {"height", [](Terms& terms) { terms.call.tables[0].height = 5; }, text},
      {"width", [](Terms& terms) { terms.call.tables[1].width = 3; }, text},
      {"tables", [](Terms& terms) { terms.call.tables.pop_back(); }, text},
      {"dtype",
       [](Terms& terms) {
         for (RowTable& table : terms.call.tables) table.dtype = DType::kFloat64;
       },
       text},
      {"op", [](Terms& terms) { terms.call.options.op = ReduceOp::kAverage; }, text},
      {"result", [](Terms& terms) { terms.call.options.result = RowForm::kTable; }, text},
      {"exchange", [](Terms& terms) { terms.call.options.exchange = RowForm::kRows; }, text},
      {"scale before", [](Terms& terms) { terms.call.options.scales.before = 2; }, text},
      {"scale after", [](Terms& terms) { terms.call.options.scales.after = 0.5; }, text},
      {"operation", [](Terms& terms) { terms.is_all_reduce = true; }, text},
  };
  return all;
}

Called call_rows(MismatchJob& job, const Members& members, int rank, const RowTerms& terms) {
  struct Memory {
    std::vector<double> rows = std::vector<double>(16, 0);
    std::vector<float> data = std::vector<float>(10);
    LinkCosts costs = {};
    OperationPool pool;
    std::shared_ptr<void> call = {};
  };
  auto memory = std::make_shared<Memory>();
  if (terms.is_all_reduce) {
    const OperationCalls make(memory->pool, rank, members.size());
    auto operation = make.make(OperationKind::kAllReduce, "x", memory->data);
    members.engine(rank).submit(operation);
    memory->call = operation;
    return called(operation->ticket, memory);
  }
  const std::vector<std::int64_t> indices{2, 0, 2};
  std::vector<TableRows> tables;
  for (const RowTable& table : terms.call.tables) {
    tables.push_back({.table = table, .indices = indices, .rows = memory->rows.data()});
  }
  std::vector<RowSums> sums(tables.size());
  const PlanInputs inputs{.rank = rank,
                          .grid = *members.grid,
                          .options = job.options_in_force(),
                          .costs = memory->costs};
  auto reduction = std::make_shared<RowReduction>(inputs, "x", tables, terms.call.options, sums);
  members.engine(rank).submit(std::shared_ptr<CompositeOp>(reduction));
  return called(reduction, memory);
}

TEST(RowMismatches, AreTheSameErrorOnAllRanksAndLeaveTheRestUsable) {
  const CapturedLog log;
  MismatchJob job(4);
  for (const Members* const members : job.both()) {
    const auto finish_all = [&](const std::vector<RowTerms>& terms) {
      std::vector<Called> calls;
      for (int rank = 0; rank < members->size(); ++rank) {
        calls.push_back(call_rows(job, *members, rank, terms[static_cast<std::size_t>(rank)]));
      }
      job.finish(calls);
      return calls;
    };
    for (std::size_t i = 0; i < row_fields().size(); ++i) {
      for (std::size_t k = i; k < row_fields().size(); ++k) {
        SCOPED_TRACE(std::string(row_fields()[i].name) + " and " + row_fields()[k].name);
        const auto terms =
            disagreement(RowTerms{}, members->size(), row_fields()[i], row_fields()[k]);
        std::vector<std::string> texts;
        for (const RowTerms& each : terms) texts.push_back(row_fields()[0].value(each, 0));
        MismatchJob::expect_disagreement(*members, finish_all(terms), texts);
        job.expect_sums_everywhere();
        job.expect_success(
            finish_all(std::vector<RowTerms>(static_cast<std::size_t>(members->size()))));
      }
    }
  }
}

// --- Messages -----------------------------------------------------------------------------------

// Another tag or peer would mean another message, which waits.
TEST(MessageMismatches, AreTheSameErrorOnBothRanks) {
  const CapturedLog log;
  MismatchJob job(5);
  struct Case {
    DType dtype;
    std::size_t room;  ///< Elements of the receive, fewer than the message has.
    const char* text;
  };
  const Case cases[] = {{DType::kInt32, 0, "which receives int32"},
                        {DType::kFloat32, 1, "whose buffer holds "}};
  for (const Members* const members : job.both()) {
    for (const std::size_t count : {std::size_t{100'000}, std::size_t{10}}) {
      for (const auto& [dtype, less, text] : cases) {
        for (const bool sends_first : {true, false}) {
          std::vector<float> data(count), got(count);
          auto send =
              std::make_shared<test::CalledMessage>(Message::Kind::kSend, test::view(data), 2, 7);
          auto receive = std::make_shared<test::CalledMessage>(
              Message::Kind::kReceive, BufferView{got.data(), count - less, dtype}, 1, 7);
          if (sends_first) members->engine(1).submit(send);
          members->engine(2).submit(receive);
          if (!sends_first) members->engine(1).submit(send);
          job.job().run_until([&] { return send->is_over() && receive->is_over(); });
          EXPECT_EQ(receive->code(), ErrorCode::kMismatch);
          EXPECT_THAT(receive->text(), testing::StartsWith(members->prefix));
          EXPECT_THAT(receive->text(),
                      HasSubstr(fmt::format("rank 1 sends {} elements of float32 with tag 7 to "
                                            "rank 2, {}",
                                            count, text)));
          // A small message is sent, and its call done, before the receive begins.
          if (count > 10) {
            EXPECT_EQ(send->text(), receive->text());
          }
          job.expect_sums_everywhere();
        }
      }
    }
  }
}

// --- Groups -------------------------------------------------------------------------------------

TEST(GroupMismatches, AreTheSameErrorOnAllMembers) {
  const CapturedLog log;
  MismatchJob job(6);
  struct Case {
    std::vector<int> ranks;
    std::size_t arena_bytes;
    std::string text;
  };
  const Case base{{1, 0, 3}, 4096, ""};
  const Case cases[] = {
      {{3, 0, 1}, 4096, "the job's rank 3 names the members in another order than rank 0"},
      {{1, 0, 3}, 8192, "rank 0 has arena_bytes 4096 and rank 3 has arena_bytes 8192"}};
  for (const Case& other : cases) {
    std::vector<std::shared_ptr<GroupCreation>> creations;
    for (const int rank : base.ranks) {
      const Case& mine = rank == 3 ? other : base;
      creations.push_back(job.job().create(rank, mine.ranks, "new", mine.arena_bytes));
    }
    job.job().run_until([&] {
      return std::ranges::all_of(creations, [](const auto& each) { return each->ticket.done(); });
    });
    const std::string error = error_of(creations[0]->ticket);
    EXPECT_THAT(error, testing::AllOf(testing::StartsWith("mismatch: group 'new' [1, 0, 3]: "),
                                      HasSubstr(other.text), HasSubstr("rank 3")));
    for (const auto& creation : creations) EXPECT_EQ(error_of(creation->ticket), error);
    job.expect_sums_everywhere();
    EXPECT_EQ(job.job().create_all(base.ranks, "new").size(), 3u);
  }
}

}  // namespace
}  // namespace kolo::mismatch
