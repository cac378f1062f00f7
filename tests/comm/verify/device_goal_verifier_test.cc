// Damaged schedules of the device's own collectives with a range for each rank.

#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "comm/algorithms/compile.h"
#include "comm/verify/verifier.h"

namespace kolo {
namespace {

struct GoalCase {
  std::string name;
  Goal goal;
  bool out_of_place = true;
  std::vector<std::string> not_found = {};  ///< Mutations with nothing to damage here.
};

const std::vector<std::size_t> kParts{5, 0, 7, 4};

using Natives = std::vector<Schedule>;
/// Damages correct schedules; returns false if there is nothing of the kind to damage.
using Damage = bool (*)(Natives&, std::mt19937&);

Step& step_of(Natives& schedules, std::mt19937& random) {
  return schedules[random() % schedules.size()].steps.at(0);
}

/// Ranges of the step that are not empty.
std::vector<Range*> ranges_of(Step& step) {
  std::vector<Range*> all;
  for (Range& range : step.sources) all.push_back(&range);
  for (Range& range : step.mirrors) all.push_back(&range);
  all.push_back(&step.target);
  std::erase_if(all, [](const Range* range) { return range->count == 0; });
  return all;
}

Range* any_range(Natives& schedules, std::mt19937& random) {
  const std::vector<Range*> all = ranges_of(step_of(schedules, random));
  return all.empty() ? nullptr : all[random() % all.size()];
}

bool leave_out(Natives& schedules, std::mt19937& random) {
  Step& step = step_of(schedules, random);
  step = Step{.kind = StepKind::kCopy, .sources = {Range{}}};
  return true;
}

bool shorten(Natives& schedules, std::mt19937& random) {
  Range* const range = any_range(schedules, random);
  if (range == nullptr) return false;
  --range->count;
  return true;
}

bool shift(Natives& schedules, std::mt19937& random) {
  Range* const range = any_range(schedules, random);
  if (range == nullptr) return false;
  range->offset += range->offset == 0 ? 1U : std::size_t(0) - 1;
  return true;
}

bool swap_ranks(Natives& schedules, std::mt19937& random) {
  Step& step = step_of(schedules, random);
  std::vector<Range>& list = random() % 2 == 0 ? step.sources : step.mirrors;
  if (list.size() < 2) return false;
  const std::size_t i = random() % list.size(), j = random() % list.size();
  if (list[i].count == list[j].count && list[i].offset == list[j].offset) return false;
  if (list[i].count == 0 && list[j].count == 0) return false;
  std::swap(list[i], list[j]);
  return true;
}

bool forget_rank(Natives& schedules, std::mt19937& random) {
  Step& step = step_of(schedules, random);
  std::vector<Range>& list = step.mirrors.empty() ? step.sources : step.mirrors;
  list.pop_back();
  return true;
}

bool mistake_op(Natives& schedules, std::mt19937& random) {
  Step& step = step_of(schedules, random);
  step.native = step.native == NativeOp::kExchange ? NativeOp::kGatherParts : NativeOp::kExchange;
  return true;
}

bool write_to_input(Natives& schedules, std::mt19937& random) {
  if (!schedules.front().layout.out_of_place) return false;
  Step& step = step_of(schedules, random);
  for (Range& range : step.mirrors) {
    if (range.count > 0) return range.region = Region::kInput, true;
  }
  return step.target.count > 0 && (step.target.region = Region::kInput, true);
}

bool read_result(Natives& schedules, std::mt19937& random) {
  if (!schedules.front().layout.out_of_place) return false;
  Step& step = step_of(schedules, random);
  for (Range& range : step.sources) {
    if (range.count > 0) return range.region = Region::kUser, true;
  }
  return false;
}

bool change_scaling(Natives& schedules, std::mt19937& random) {
  Step& step = step_of(schedules, random);
  step.finishes = !step.finishes;
  return true;
}

bool forbid_tensors(Natives& schedules, std::mt19937& random) {
  if (any_range(schedules, random) == nullptr) return false;
  for (Schedule& schedule : schedules) schedule.layout.placement = Placement::kStaged;
  return true;
}

/// Tensors of different lengths, one of them empty.
template <typename MakeGoal>
Goal of_tensors(const MakeGoal& make) {
  return Goal::of_tensors({make(kParts), make(std::vector<std::size_t>{0, 3, 3, 1}),
                           make(std::vector<std::size_t>(4)), make(kParts)});
}

class DeviceGoalMutations : public testing::TestWithParam<GoalCase> {};

TEST_P(DeviceGoalMutations, AreCaught) {
  const GoalCase& tried = GetParam();
  const ProcessGrid grid = ProcessGrid::with_node_sizes({4});
  const BucketLayout layout{.count = tried.goal.count(),
                            .placement = Placement::kUser,
                            .memory = MemoryKind::kDevice,
                            .out_of_place = tried.out_of_place};
  Natives correct;
  for (int rank = 0; rank < 4; ++rank) {
    correct.push_back(compile(rank, tried.goal, layout, grid, {.algorithm = "native"}));
    ASSERT_EQ(correct.back().steps.size(), 1U);
  }
  ASSERT_EQ(verify(correct, grid, tried.goal), std::nullopt);

  const std::pair<const char*, Damage> mutations[] = {{"leave_out", leave_out},
                                                      {"shorten", shorten},
                                                      {"shift", shift},
                                                      {"swap_ranks", swap_ranks},
                                                      {"forget_rank", forget_rank},
                                                      {"mistake_op", mistake_op},
                                                      {"write_to_input", write_to_input},
                                                      {"read_result", read_result},
                                                      {"change_scaling", change_scaling},
                                                      {"forbid_tensors", forbid_tensors}};
  std::vector<std::string> not_found;
  for (const auto& [name, damage] : mutations) {
    bool is_found = false;
    for (unsigned seed = 0; seed < 60; ++seed) {
      std::mt19937 random(seed);
      Natives damaged = correct;
      if (!damage(damaged, random)) continue;
      is_found = true;
      EXPECT_NE(verify(damaged, grid, tried.goal), std::nullopt) << name << " seed " << seed;
    }
    if (!is_found) not_found.emplace_back(name);
  }
  EXPECT_EQ(not_found, tried.not_found);
}

INSTANTIATE_TEST_SUITE_P(
    Native, DeviceGoalMutations,
    testing::Values(
        GoalCase{"all_reduce",
                 Goal::all_reduce(4, 20),
                 false,
                 {"swap_ranks", "write_to_input", "read_result"}},
        GoalCase{"reduce", Goal::reduce(2, 4, 20)},
        GoalCase{
            "reduce_in_place", Goal::reduce(2, 4, 20), false, {"write_to_input", "read_result"}},
        GoalCase{"reduce_scatter", Goal::reduce_scatter(kParts)},
        GoalCase{"all_gather", Goal::all_gather(kParts)},
        GoalCase{"all_gather_in_place",
                 Goal::all_gather(kParts),
                 false,
                 {"write_to_input", "read_result"}},
        GoalCase{"broadcast", Goal::broadcast(1, 4, 9), false, {"write_to_input", "read_result"}},
        GoalCase{"gather", Goal::gather(3, kParts)}, GoalCase{"scatter", Goal::scatter(0, kParts)},
        GoalCase{"all_to_all",
                 Goal::all_to_all(4, std::vector<std::size_t>{1, 2, 3, 4, 5, 6, 7, 0, 9, 8, 7, 6, 0,
                                                              4, 3, 2})},
        GoalCase{"reduce_scatter_of_tensors", of_tensors(Goal::reduce_scatter)},
        GoalCase{"all_gather_of_tensors", of_tensors(Goal::all_gather)},
        GoalCase{"all_gather_of_tensors_in_place",
                 of_tensors(Goal::all_gather),
                 false,
                 {"write_to_input", "read_result"}},
        GoalCase{"gather_of_tensors",
                 of_tensors([](const auto& parts) { return Goal::gather(1, parts); })},
        GoalCase{"scatter_of_tensors",
                 of_tensors([](const auto& parts) { return Goal::scatter(2, parts); })},
        GoalCase{"broadcast_of_tensors",
                 of_tensors([](const auto& parts) { return Goal::broadcast(1, 4, parts[1] + 2); }),
                 false,
                 {"write_to_input", "read_result"}}),
    [](const auto& each) { return each.param.name; });

TEST(DeviceGoals, NothingReplacesAContributionThatIsStillToBeSent) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes({3});
  const Goal goal = Goal::all_to_all(3, std::vector<std::size_t>{1, 2, 3, 2, 5, 0, 3, 0, 4});
  const BucketLayout layout{.count = goal.count(),
                            .placement = Placement::kUser,
                            .memory = MemoryKind::kDevice,
                            .out_of_place = true,
                            .replaces_inputs = true};
  Natives correct;
  for (int rank = 0; rank < 3; ++rank) {
    correct.push_back(compile(rank, goal, layout, grid, {.algorithm = "native"}));
  }
  ASSERT_EQ(verify(correct, grid, goal), std::nullopt);
  const auto exchange = [](Schedule& schedule) -> Step& { return schedule.steps.back(); };

  Natives hasty = correct;
  exchange(hasty[0]).after.clear();
  EXPECT_NE(verify(hasty, grid, goal), std::nullopt) << "sends what is not copied yet";

  Natives careless = correct;
  Step& copy = careless[0].steps.front();
  ASSERT_EQ(copy.kind, StepKind::kCopy);
  for (Range& sent : exchange(careless[0]).sources) {
    if (sent == copy.target) sent = copy.sources[0];
  }
  EXPECT_EQ(verify(careless, grid, goal),
            "rank 0 step 2 (native) may replace what rank 0 step 2 (native) reads");
  for (Schedule& each : careless) each.layout.replaces_inputs = false;
  EXPECT_NE(verify(careless, grid, goal), std::nullopt)
      << "what a rank has for itself goes nowhere";
}

}  // namespace
}  // namespace kolo
