// Tests damaged schedules of native collectives that have a range for each rank.

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "comm/algorithms/compile.h"
#include "comm/verify/verifier.h"
#include "tests/comm/verify/mutations.h"

namespace kolo {
namespace {

struct SpecCase {
  std::string name;
  CollectiveSpec spec;
  bool out_of_place = true;
  std::vector<std::string> not_found = {};  ///< Mutations that find nothing in this case.
};

const std::vector<std::size_t> kParts{5, 0, 7, 4};

using Natives = test::Schedules;

Step& step_of(Natives& schedules, std::mt19937& random) {
  return schedules[random() % schedules.size()].steps.at(0);
}

/// Returns a random non-empty range of a step of any rank; null if there is none.
Range* any_range(Natives& schedules, std::mt19937& random) {
  Step& step = step_of(schedules, random);
  std::vector<Range*> all;
  for (Range& range : step.sources) all.push_back(&range);
  for (Range& range : step.mirrors) all.push_back(&range);
  all.push_back(&step.target);
  std::erase_if(all, [](const Range* range) { return range->count == 0; });
  return all.empty() ? nullptr : all[random() % all.size()];
}

/// Changes a range of a step of any rank.
template <typename Change>
test::Damage change_a_range(Change change) {
  return [=](Natives& schedules, const ProcessGrid&, std::mt19937& random) {
    Range* const range = any_range(schedules, random);
    if (range != nullptr) change(*range);
    return range != nullptr;
  };
}

/// Moves the first non-empty range from contributions to results or back, if these are separate.
bool misplace(const Natives& schedules, std::vector<Range>& ranges, Region region) {
  const auto range = std::ranges::find_if(ranges, [](const Range& of) { return of.count > 0; });
  if (!schedules.front().layout.out_of_place || range == ranges.end()) return false;
  range->region = region;
  return true;
}

bool swap_ranks(Natives& schedules, const ProcessGrid&, std::mt19937& random) {
  Step& step = step_of(schedules, random);
  std::vector<Range>& list = random() % 2 == 0 ? step.sources : step.mirrors;
  if (list.size() < 2) return false;
  const std::size_t i = random() % list.size(), j = random() % list.size();
  if (list[i].count == list[j].count && list[i].offset == list[j].offset) return false;
  if (list[i].count == 0 && list[j].count == 0) return false;
  std::swap(list[i], list[j]);
  return true;
}

bool write_to_input(Natives& schedules, const ProcessGrid&, std::mt19937& random) {
  Step& step = step_of(schedules, random);
  if (misplace(schedules, step.mirrors, Region::kInput)) return true;
  if (!schedules.front().layout.out_of_place || step.target.count == 0) return false;
  step.target.region = Region::kInput;
  return true;
}

bool read_result(Natives& schedules, const ProcessGrid&, std::mt19937& random) {
  return misplace(schedules, step_of(schedules, random).sources, Region::kUser);
}

bool forbid_tensors(Natives& schedules, const ProcessGrid&, std::mt19937& random) {
  if (any_range(schedules, random) == nullptr) return false;
  for (Schedule& schedule : schedules) schedule.layout.placement = Placement::kStaged;
  return true;
}

/// Accepts any step, because all steps are native.
bool is_any(const Step&) { return true; }

const test::Mutation kSpecMutations[] = {
    {"leave_out", test::drop_a_step(is_any)},
    {"shorten", change_a_range([](Range& range) { --range.count; })},
    {"shift", change_a_range([](Range& range) {
       range.offset += range.offset == 0 ? 1U : std::size_t(0) - 1;
     })},
    {"swap_ranks", swap_ranks},
    {"forget_rank",
     test::change_a_step(
         is_any,
         [](Step& step) { (step.mirrors.empty() ? step.sources : step.mirrors).pop_back(); })},
    {"mistake_op", test::change_a_step(is_any,
                                       [](Step& step) {
                                         step.native = step.native == NativeOp::kExchange
                                                           ? NativeOp::kGatherParts
                                                           : NativeOp::kExchange;
                                       })},
    {"write_to_input", write_to_input},
    {"read_result", read_result},
    {"change_scaling",
     test::change_a_step(is_any, [](Step& step) { step.finishes = !step.finishes; })},
    {"forbid_tensors", forbid_tensors}};

/// Makes a spec of tensors with different lengths, one of them empty.
template <typename MakeSpec>
CollectiveSpec of_tensors(const MakeSpec& make) {
  return CollectiveSpec::of_tensors({make(kParts), make(std::vector<std::size_t>{0, 3, 3, 1}),
                                     make(std::vector<std::size_t>(4)), make(kParts)});
}

class DeviceSpecMutations : public testing::TestWithParam<SpecCase> {};

TEST_P(DeviceSpecMutations, AreCaught) {
  const SpecCase& tried = GetParam();
  const ProcessGrid grid = ProcessGrid::with_node_sizes({4});
  const BucketLayout layout{.count = tried.spec.count(),
                            .placement = Placement::kUser,
                            .memory = MemoryKind::kDevice,
                            .out_of_place = tried.out_of_place};
  Natives correct;
  for (int rank = 0; rank < 4; ++rank) {
    correct.push_back(compile(rank, tried.spec, layout, grid, {.algorithm = "native"}));
    ASSERT_EQ(correct.back().steps.size(), 1U);
  }
  EXPECT_EQ(test::expect_caught(correct, grid, tried.spec, kSpecMutations), tried.not_found);
}

INSTANTIATE_TEST_SUITE_P(
    Native, DeviceSpecMutations,
    testing::Values(
        SpecCase{"all_reduce",
                 CollectiveSpec::all_reduce(4, 20),
                 false,
                 {"swap_ranks", "write_to_input", "read_result"}},
        SpecCase{"reduce", CollectiveSpec::reduce(2, 4, 20)},
        SpecCase{"reduce_in_place",
                 CollectiveSpec::reduce(2, 4, 20),
                 false,
                 {"write_to_input", "read_result"}},
        SpecCase{"reduce_scatter", CollectiveSpec::reduce_scatter(kParts)},
        SpecCase{"all_gather", CollectiveSpec::all_gather(kParts)},
        SpecCase{"all_gather_in_place",
                 CollectiveSpec::all_gather(kParts),
                 false,
                 {"write_to_input", "read_result"}},
        SpecCase{"broadcast",
                 CollectiveSpec::broadcast(1, 4, 9),
                 false,
                 {"write_to_input", "read_result"}},
        SpecCase{"gather", CollectiveSpec::gather(3, kParts)},
        SpecCase{"scatter", CollectiveSpec::scatter(0, kParts)},
        SpecCase{"all_to_all",
                 CollectiveSpec::all_to_all(4, std::vector<std::size_t>{1, 2, 3, 4, 5, 6, 7, 0, 9,
                                                                        8, 7, 6, 0, 4, 3, 2})},
        SpecCase{"reduce_scatter_of_tensors", of_tensors(CollectiveSpec::reduce_scatter)},
        SpecCase{"all_gather_of_tensors", of_tensors(CollectiveSpec::all_gather)},
        SpecCase{"all_gather_of_tensors_in_place",
                 of_tensors(CollectiveSpec::all_gather),
                 false,
                 {"write_to_input", "read_result"}},
        SpecCase{"gather_of_tensors",
                 of_tensors([](const auto& parts) { return CollectiveSpec::gather(1, parts); })},
        SpecCase{"scatter_of_tensors",
                 of_tensors([](const auto& parts) { return CollectiveSpec::scatter(2, parts); })},
        SpecCase{
            "broadcast_of_tensors",
            of_tensors(
                [](const auto& parts) { return CollectiveSpec::broadcast(1, 4, parts[1] + 2); }),
            false,
            {"write_to_input", "read_result"}}),
    [](const auto& each) { return each.param.name; });

TEST(DeviceCollectives, NothingReplacesAContributionThatIsStillToBeSent) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes({3});
  const CollectiveSpec spec =
      CollectiveSpec::all_to_all(3, std::vector<std::size_t>{1, 2, 3, 2, 5, 0, 3, 0, 4});
  const BucketLayout layout{.count = spec.count(),
                            .placement = Placement::kUser,
                            .memory = MemoryKind::kDevice,
                            .out_of_place = true,
                            .replaces_inputs = true};
  Natives correct;
  for (int rank = 0; rank < 3; ++rank) {
    correct.push_back(compile(rank, spec, layout, grid, {.algorithm = "native"}));
  }
  ASSERT_EQ(verify(correct, grid, spec), std::nullopt);
  const auto exchange = [](Schedule& schedule) -> Step& { return schedule.steps.back(); };

  Natives hasty = correct;
  exchange(hasty[0]).after.clear();
  EXPECT_NE(verify(hasty, grid, spec), std::nullopt) << "sends what is not copied yet";

  Natives careless = correct;
  Step& copy = careless[0].steps.front();
  ASSERT_EQ(copy.kind, StepKind::kCopy);
  for (Range& sent : exchange(careless[0]).sources) {
    if (sent == copy.target) sent = copy.sources[0];
  }
  EXPECT_EQ(verify(careless, grid, spec),
            "rank 0 step 2 (native) may replace what rank 0 step 2 (native) reads");
  for (Schedule& each : careless) each.layout.replaces_inputs = false;
  EXPECT_NE(verify(careless, grid, spec), std::nullopt)
      << "what a rank has for itself goes nowhere";
}

}  // namespace
}  // namespace kolo
