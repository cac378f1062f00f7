#include "comm/verify/verifier.h"

#include <gmock/gmock.h>

#include <random>

#include "comm/algorithms/compile.h"
#include "tests/comm/verify/mutations.h"
#include "tests/support/compiled_schedules.h"

namespace kolo {
namespace {

using test::at;
using test::change_a_step;
using test::compile_all;
using test::disarm;
using test::drop_a_step;
using test::lose_an_order;
using test::Mutation;
using test::pick;
using test::Schedules;
using testing::HasSubstr;

bool any(const Step&) { return true; }
bool is_reduction(const Step& step) { return step.kind == StepKind::kReduce; }
bool is_exchange(const Step& step) { return step.kind == StepKind::kExchange; }
bool has_mirrors(const Step& step) { return !step.mirrors.empty(); }

bool misdirect(Schedules& schedules, const ProcessGrid&, std::mt19937& random) {
  const auto where = pick(schedules, random, [](const Step& step) { return step.peer >= 0; });
  if (!where || schedules.size() < 3) return false;
  Step& step = at(schedules, *where);
  do {
    step.peer = (step.peer + 1) % static_cast<int>(schedules.size());
  } while (step.peer == static_cast<int>(where->first));
  return true;
}

/// Removes a flag from both of its ranks.
bool drop_flag(Schedules& schedules, const ProcessGrid&, std::mt19937& random) {
  const auto where =
      pick(schedules, random, [](const Step& step) { return step.kind == StepKind::kSignal; });
  if (!where) return false;
  const Step signal = at(schedules, *where);
  const auto peer = static_cast<std::size_t>(signal.peer);
  for (StepId id = 0; id < schedules[peer].steps.size(); ++id) {
    const Step& step = schedules[peer].steps[id];
    if (step.kind == StepKind::kAwait && step.peer == static_cast<int>(where->first) &&
        step.ordinal == signal.ordinal) {
      disarm(schedules, {peer, id});
    }
  }
  disarm(schedules, *where);
  return true;
}

/// Lets the next iteration overwrite data that peers may still read from the previous one.
bool take_no_turns(Schedules& schedules, const ProcessGrid& grid, std::mt19937&) {
  if (schedules[0].staging_turns < 2 || grid.num_nodes() == grid.world_size()) return false;
  for (Schedule& schedule : schedules) schedule.staging_turns = 1;
  return true;
}

bool disagree_about_arena(Schedules& schedules, const ProcessGrid& grid, std::mt19937& random) {
  const auto rank = static_cast<std::size_t>(random() % schedules.size());
  if (grid.ranks_of_node(grid.node(static_cast<int>(rank))).size() == 1) return false;
  Schedule& schedule = schedules[rank];
  switch (random() % 3) {
    case 0:
      ++schedule.staging_count;
      return true;
    case 1:
      ++schedule.staging_turns;
      return true;
    default:
      schedule.has_bucket = !schedule.has_bucket;
      return true;
  }
}

bool wait_in_circle(Schedules& schedules, const ProcessGrid&, std::mt19937& random) {
  const auto where = pick(schedules, random, [](const Step& step) { return !step.after.empty(); });
  if (!where) return false;
  const StepId earlier = at(schedules, *where).after.front();
  at(schedules, {where->first, earlier}).after.push_back(where->second);
  return true;
}

/// Returns whether both steps access a common range and one of them writes it.
bool conflict(const Step& a, const Step& b) {
  const auto outputs = [](const Step& step) {
    std::vector<Range> ranges = step.mirrors;
    if (step.target.count > 0) ranges.push_back(step.target);
    return ranges;
  };
  const auto any_overlap = [](const std::vector<Range>& left, const std::vector<Range>& right) {
    return std::ranges::any_of(left, [&](const Range& range) {
      return std::ranges::any_of(right, [&](const Range& other) { return range.overlaps(other); });
    });
  };
  return any_overlap(outputs(a), b.sources) || any_overlap(outputs(b), a.sources) ||
         any_overlap(outputs(a), outputs(b));
}

/// Lets one rank sum in another order than the other ranks, which sum the same elements.
bool sum_in_another_order(Schedules& schedules, const ProcessGrid&, std::mt19937& random) {
  const auto where = pick(schedules, random, [](const Step& step) {
    return is_reduction(step) && step.sources.size() > 2;
  });
  if (!where || schedules[0].algorithm != "flat") return false;
  std::vector<Range>& sources = at(schedules, *where).sources;
  std::swap(sources.front(), sources.back());
  return true;
}

const Mutation kMutations[] = {
    {"drop_step", drop_a_step(any)},
    {"misdirect", misdirect},
    {"shift_range", change_a_step(
                        [](const Step& step) {
                          return step.kind == StepKind::kRecv &&
                                 step.target.region == Region::kBucket && step.target.count > 1;
                        },
                        [](Step& step) { --step.target.count; })},
    // Copies or unpacks the wrong elements.
    {"mistake_elements", change_a_step(
                             [](const Step& step) {
                               return step.kind == StepKind::kUnpack &&
                                      step.sources[0].offset >= step.sources[0].count;
                             },
                             [](Step& step) { step.sources[0].offset -= step.sources[0].count; })},
    {"sum_twice",
     change_a_step(is_reduction, [](Step& step) { step.sources.push_back(step.sources.front()); })},
    {"sum_in_another_order", sum_in_another_order},
    {"forget_scale", change_a_step([](const Step& step) { return step.finishes; },
                                   [](Step& step) { step.finishes = false; })},
    {"scale_twice",
     change_a_step([](const Step& step) { return is_reduction(step) && !step.finishes; },
                   [](Step& step) { step.finishes = true; })},
    {"drop_mirror", change_a_step(has_mirrors, [](Step& step) { step.mirrors.pop_back(); })},
    // Writes a sum to another element, or to another chunk.
    {"misplace_mirror",
     change_a_step([](const Step& step) { return has_mirrors(step) && step.mirrors[0].offset > 0; },
                   [](Step& step) { --step.mirrors[0].offset; })},
    {"drop_flag", drop_flag},
    // A step that writes no longer waits for a flag.
    {"lose_await", lose_an_order([](const Step& step) { return step.target.count > 0; },
                                 [](const Step& earlier, const Step&) {
                                   return earlier.kind == StepKind::kAwait;
                                 })},
    // Unpacks before a peer has summed, or overwrites too early.
    {"exchange_early", change_a_step(is_exchange, [](Step& step) { step.after.clear(); })},
    // Packs the elements of another chunk.
    {"exchange_other_elements",
     change_a_step(is_exchange, [](Step& step) { std::swap(step.mirrors[0], step.sources[1]); })},
    // Packs a slot again before its previous chunk is unpacked.
    {"reuse_slot_early", change_a_step(
                             [](const Step& step) {
                               return step.kind == StepKind::kPack &&
                                      step.target.region == Region::kStaging && !step.after.empty();
                             },
                             [](Step& step) { step.after.clear(); })},
    {"take_no_turns", take_no_turns},
    {"disagree_about_arena", disagree_about_arena},
    {"wait_in_circle", wait_in_circle},
    {"lose_dependency", lose_an_order(any, conflict)}};

struct Case {
  std::vector<int> nodes;
  std::string algorithm;
  Placement placement = Placement::kStaged;
  DType dtype = DType::kFloat32;
};

class Mutations : public testing::TestWithParam<Case> {};

TEST_P(Mutations, AreCaught) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes(GetParam().nodes);
  const BucketLayout layout{.count = 200,
                            .dtype = GetParam().dtype,
                            .op = ReduceOp::kAverage,
                            .placement = GetParam().placement};
  const CompileOptions options{.algorithm = GetParam().algorithm, .chunk_bytes = 256, .window = 2};
  test::expect_caught(compile_all(grid, layout, options), grid,
                      CollectiveSpec::all_reduce(grid.world_size()), kMutations);
}

INSTANTIATE_TEST_SUITE_P(
    Algorithms, Mutations,
    testing::Values(
        Case{{4}, "ring"}, Case{{5}, "direct"}, Case{{2, 2}, "direct"},
        Case{{6}, "halving_doubling"}, Case{{1, 1, 1, 1}, "halving_doubling"},
        Case{{2, 3}, "hierarchical:direct,ring"}, Case{{2, 2}, "hierarchical:direct,direct"},
        Case{{3, 3}, "hierarchical:ring,halving_doubling"},
        Case{{3, 2, 1}, "hierarchical:direct,direct", Placement::kInPlace, DType::kFloat16},
        Case{{4}, "direct", Placement::kInPlace}, Case{{3}, "direct", Placement::kUser},
        Case{{4}, "flat", Placement::kInPlace}, Case{{3}, "flat"},
        Case{{2, 3}, "flat", Placement::kUser}));

/// Each mutation must find something to damage in a schedule. Otherwise it would prove nothing.
TEST(Verifier, EachMutationHasItsTarget) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes({3});
  const auto windowed = compile_all(grid, {.count = 200, .placement = Placement::kUser},
                                    {.algorithm = "direct", .chunk_bytes = 256, .window = 2});
  const auto flat = compile_all(grid, {.count = 200}, {.algorithm = "flat"});
  const CollectiveSpec spec = CollectiveSpec::all_reduce(3);
  const auto not_found = test::expect_caught(windowed, grid, spec, kMutations);
  for (const char* const name :
       {"drop_mirror", "misplace_mirror", "drop_flag", "lose_await", "exchange_early",
        "exchange_other_elements", "reuse_slot_early", "lose_dependency"}) {
    EXPECT_THAT(not_found, testing::Not(testing::Contains(name)));
  }
  const auto not_found_in_flat = test::expect_caught(flat, grid, spec, kMutations);
  for (const char* const name : {"take_no_turns", "lose_await", "sum_in_another_order"}) {
    EXPECT_THAT(not_found_in_flat, testing::Not(testing::Contains(name)));
  }
}

TEST(Verifier, NamesRankAndStep) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes({1, 1});
  std::vector<Schedule> schedules = compile_all(grid, {.count = 64}, {.algorithm = "ring"});
  schedules[1].steps.pop_back();
  const auto wrong = verify(schedules, grid, CollectiveSpec::all_reduce(2));
  ASSERT_TRUE(wrong);
  EXPECT_THAT(*wrong, HasSubstr("rank "));
  EXPECT_THAT(*wrong, HasSubstr("step "));
}

// Rank 0 rounds a sum between two steps; the other ranks sum and divide in one step.
TEST(Verifier, WantsEqualRoundingOnAllRanks) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes({3});
  const BucketLayout layout{
      .count = 64, .op = ReduceOp::kAverage, .placement = Placement::kInPlace};
  const Schedules correct = compile_all(grid, layout, {.algorithm = "flat"});
  const auto with_two_sums = [&](std::size_t in_first) {
    Schedules damaged = correct;
    std::vector<Step>& steps = damaged[0].steps;
    const auto first = static_cast<StepId>(steps.size() - 1);
    Step second = steps.back();
    EXPECT_TRUE(is_reduction(second) && second.sources.size() == 3 && second.finishes);
    const auto cut = second.sources.begin() + static_cast<std::ptrdiff_t>(in_first);
    steps.back().sources.assign(second.sources.begin(), cut);
    steps.back().finishes = false;
    second.sources.erase(second.sources.begin(), cut);
    second.sources.insert(second.sources.begin(), second.target);
    second.after = {first};
    steps.push_back(second);
    return damaged;
  };
  const CollectiveSpec spec = CollectiveSpec::all_reduce(3);
  EXPECT_EQ(verify(correct, grid, spec), std::nullopt);
  EXPECT_NE(verify(with_two_sums(2), grid, spec), std::nullopt) << "(a + b) + c";
  EXPECT_NE(verify(with_two_sums(3), grid, spec), std::nullopt) << "a sum, then its third";
}

// Out of place, results must not be read as contributions, and contributions must not be changed.
TEST(Verifier, KeepsInputAndResultApart) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes({3});
  const BucketLayout layout{.count = 200, .placement = Placement::kUser, .out_of_place = true};
  const std::vector<Schedule> correct = compile_all(grid, layout, {.algorithm = "direct"});
  ASSERT_EQ(verify(correct, grid, CollectiveSpec::all_reduce(3)), std::nullopt);

  std::vector<Schedule> damaged = correct;
  auto reduction = std::ranges::find_if(damaged[1].steps, is_reduction);
  ASSERT_NE(reduction, damaged[1].steps.end());
  ASSERT_EQ(reduction->sources[1].region, Region::kInput);
  reduction->sources[1].region = Region::kUser;
  EXPECT_NE(verify(damaged, grid, CollectiveSpec::all_reduce(3)), std::nullopt);

  damaged = correct;
  reduction = std::ranges::find_if(damaged[1].steps, is_reduction);
  reduction->target.region = Region::kInput;
  const auto wrong = verify(damaged, grid, CollectiveSpec::all_reduce(3));
  ASSERT_TRUE(wrong);
  EXPECT_THAT(*wrong, HasSubstr("only read"));
}

TEST(Verifier, RejectsFlagsAndMemoryAcrossNodes) {
  const ProcessGrid together = ProcessGrid::with_node_sizes({2});
  const ProcessGrid apart = ProcessGrid::with_node_sizes({1, 1});
  const auto schedules = compile_all(together, {.count = 64}, {.algorithm = "direct"});
  EXPECT_EQ(verify(schedules, together, CollectiveSpec::all_reduce(2)), std::nullopt);
  EXPECT_NE(verify(schedules, apart, CollectiveSpec::all_reduce(2)), std::nullopt);
}

}  // namespace
}  // namespace kolo
