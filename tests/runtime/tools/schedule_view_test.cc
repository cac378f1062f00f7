#include "runtime/tools/schedule_view.h"

#include <gmock/gmock.h>

#include <fmt/format.h>

#include "comm/algorithms/compile.h"
#include "tests/support/compiled_schedules.h"

namespace kolo {
namespace {

using testing::Contains;
using testing::HasSubstr;

struct Job {
  std::string algorithm;
  ProcessGrid grid;
  BucketLayout layout{.count = 64};

  std::vector<Schedule> schedules() const {
    return test::compile_all(grid, layout, {.algorithm = algorithm});
  }
};

std::vector<Job> jobs() {
  const ProcessGrid nodes = ProcessGrid::with_node_sizes({2, 2});
  return {
      {"ring", ProcessGrid::with_node_sizes({1, 1, 1, 1})},
      {"halving_doubling", ProcessGrid::with_node_sizes({1, 1, 1, 1})},
      {"hierarchical:direct,ring", nodes},
      {"direct", ProcessGrid::with_node_sizes({3}), {.count = 64, .placement = Placement::kUser}},
      {"flat", ProcessGrid::with_node_sizes({1})},
      {"hierarchical:native,ring", nodes, {.count = 64, .memory = MemoryKind::kDevice}}};
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

/// Returns the lines of a table, with one space between cells and none before the first.
std::vector<std::string> rows_of(const std::string& table) {
  std::vector<std::string> rows;
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream cells(line);
    std::string row;
    for (std::string cell; cells >> cell;) row += (row.empty() ? "" : " ") + cell;
    rows.push_back(row);
  }
  return rows;
}

/// Expects that each tag is closed, in the order of nesting.
void expect_nested(const std::string& xml) {
  std::vector<std::string> open;
  std::size_t end = 0;
  for (auto begin = xml.find('<'); begin != std::string::npos; begin = xml.find('<', end)) {
    EXPECT_EQ(xml.substr(end, begin - end).find('>'), std::string::npos);
    end = xml.find('>', begin);
    ASSERT_NE(end, std::string::npos);
    const std::string tag = xml.substr(begin + 1, end++ - begin - 1);
    ASSERT_EQ(tag.find('<'), std::string::npos) << tag;
    if (tag.starts_with('/')) {
      ASSERT_FALSE(open.empty());
      ASSERT_EQ("/" + open.back(), tag);
      open.pop_back();
    } else if (!tag.ends_with('/')) {
      open.push_back(tag.substr(0, tag.find_first_of(" \n")));
    }
  }
  EXPECT_TRUE(open.empty());
}

TEST(ScheduleView, TableHasALineForEachStep) {
  for (const Job& job : jobs()) {
    SCOPED_TRACE(job.algorithm);
    const std::vector<Schedule> schedules = job.schedules();
    const std::string table = schedule_table(schedules, job.grid);
    std::size_t steps = 0;
    for (const Schedule& schedule : schedules) {
      steps += schedule.steps.size();
      EXPECT_THAT(table,
                  HasSubstr(fmt::format("\nrank {} on node {}: {} steps", schedule.rank,
                                        job.grid.node(schedule.rank), schedule.steps.size())));
    }
    const std::vector<std::string> rows = rows_of(table);
    const auto is_step = [](const std::string& row) {
      return !row.empty() && row.front() >= '0' && row.front() <= '9';
    };
    EXPECT_EQ(static_cast<std::size_t>(std::count_if(rows.begin(), rows.end(), is_step)), steps)
        << table;
  }
}

TEST(ScheduleView, RangesOfNothingAreLeftOut) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes({2, 2});
  const CollectiveSpec spec = CollectiveSpec::gather(0, std::vector<std::size_t>(4, 16));
  const BucketLayout layout{
      .count = spec.count(), .placement = Placement::kUser, .memory = MemoryKind::kDevice};
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < 4; ++rank) {
    schedules.push_back(compile(rank, spec, layout, grid, {.algorithm = "native"}));
  }
  const std::string table = schedule_table(schedules, grid, "gather");
  EXPECT_THAT(table, HasSubstr("exchange           -  user[16,32)  "));
  EXPECT_THAT(table, testing::Not(HasSubstr("[0,0)")));
}

TEST(ScheduleView, LinesSayPeerRangeAndWhatTheyWaitFor) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes({1, 1});
  std::vector<Schedule> schedules(2);
  for (int rank = 0; rank < 2; ++rank) {
    Schedule& schedule = schedules[static_cast<std::size_t>(rank)];
    schedule.rank = rank;
    schedule.layout.count = 8;
    schedule.steps = {
        {.kind = StepKind::kSend, .peer = 1 - rank, .sources = {{rank, Region::kBucket, 0, 8}}},
        {.kind = StepKind::kRecv, .peer = 1 - rank, .target = {rank, Region::kScratch, 0, 8}},
        {.kind = StepKind::kReduce,
         .target = {rank, Region::kBucket, 0, 8},
         .sources = {{rank, Region::kBucket, 0, 8}, {rank, Region::kScratch, 0, 8}},
         .finishes = true,
         .after = {0, 1}}};
  }
  const std::string table = schedule_table(schedules, grid);
  const std::vector<std::string> rows = rows_of(table);
  EXPECT_THAT(rows, Contains("0 0 send 1 bucket[0,8) -"));
  EXPECT_THAT(rows, Contains("1 1 recv 0 scratch[0,8) rank 0 step 0"));
  const char* reduce = "2 2 reduce - bucket[0,8) + scratch[0,8) -> bucket[0,8) 0, 1";
  EXPECT_EQ(std::count(rows.begin(), rows.end(), reduce), 2) << table;
}

TEST(ScheduleView, PictureIsNestedAndHasABoxForEachStep) {
  for (const Job& job : jobs()) {
    SCOPED_TRACE(job.algorithm);
    const std::vector<Schedule> schedules = job.schedules();
    const std::string picture = schedule_svg(schedules, job.grid);
    expect_nested(picture);
    std::size_t steps = 0, arrows = 0, reductions = 0;
    for (const Schedule& schedule : schedules) {
      steps += schedule.steps.size();
      for (const Step& step : schedule.steps) {
        arrows += step.kind == StepKind::kRecv || step.kind == StepKind::kAwait ? 1U : 0U;
        reductions += step.kind == StepKind::kReduce ? 1U : 0U;
      }
    }
    EXPECT_EQ(count_of(picture, "<g class=\"step\">"), steps);
    EXPECT_EQ(count_of(picture, "stroke-width=\"2\""), reductions);
    EXPECT_GE(count_of(picture, "marker-end"), arrows);
  }
}

TEST(ScheduleOrder, AStepComesAfterAllThatItWaitsFor) {
  for (const Job& job : jobs()) {
    SCOPED_TRACE(job.algorithm);
    const std::vector<Schedule> schedules = job.schedules();
    const ScheduleOrder order = order_of(schedules, job.grid);
    for (const Schedule& schedule : schedules) {
      const auto rank = static_cast<std::size_t>(schedule.rank);
      for (StepId id = 0; id < schedule.steps.size(); ++id) {
        for (StepId earlier : schedule.steps[id].after) {
          EXPECT_LT(order.round[rank][earlier], order.round[rank][id]);
        }
        if (const auto& source = order.source[rank][id]) {
          EXPECT_LT(order.round[static_cast<std::size_t>(source->rank)][source->step],
                    order.round[rank][id]);
        }
      }
    }
  }
}

}  // namespace
}  // namespace kolo
