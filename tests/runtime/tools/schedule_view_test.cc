#include "runtime/tools/schedule_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "runtime/tools/schedule_order.h"
#include "tests/support/compiled_schedules.h"

namespace kolo {
namespace {

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

std::size_t count_of(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  return static_cast<std::size_t>(
      std::distance(std::sregex_iterator(text.begin(), text.end(), regex), {}));
}

/// Whether each tag is closed, in the order of nesting.
void expect_nested(const std::string& xml) {
  static const std::regex tag("<(/?)([a-z]+)[^<>]*?(/?)>");
  std::vector<std::string> open;
  for (auto it = std::sregex_iterator(xml.begin(), xml.end(), tag); it != std::sregex_iterator();
       ++it) {
    if ((*it)[1].length() > 0) {
      ASSERT_FALSE(open.empty());
      ASSERT_EQ(open.back(), (*it)[2]);
      open.pop_back();
    } else if ((*it)[3].length() == 0) {
      open.push_back((*it)[2]);
    }
  }
  EXPECT_TRUE(open.empty());
  EXPECT_EQ(count_of(std::regex_replace(xml, tag, ""), "[<>]"), 0U);
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
    EXPECT_EQ(count_of(table, "\n +[0-9]+ +[0-9]+ +[a-z]"), steps) << table;
  }
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
  EXPECT_EQ(count_of(table, "0 +0 +send +1 +bucket\\[0,8\\) +-\n"), 1U) << table;
  EXPECT_EQ(count_of(table, "1 +1 +recv +0 +scratch\\[0,8\\) +rank 0 step 0\n"), 1U) << table;
  EXPECT_EQ(count_of(table,
                     "2 +2 +reduce +- +bucket\\[0,8\\) \\+ scratch\\[0,8\\) -> bucket\\[0,8\\) "
                     "+0, 1\n"),
            2U)
      << table;
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
