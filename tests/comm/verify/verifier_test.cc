#include "comm/verify/verifier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "comm/algorithms/compile.h"
#include "tests/support/compiled_schedules.h"
#include "tests/support/schedule_order.h"

namespace kolo {
namespace {

using test::compile_all;
using testing::HasSubstr;

/// Which part of a correct set of schedules a mutation damages; returns false if there is nothing
/// of the kind to damage.
using Mutation = bool (*)(std::vector<Schedule>&, const ProcessGrid&, std::mt19937&);

/// A random step for which `eligible` holds, as (rank, step), or (-1, 0).
template <typename Eligible>
std::pair<int, StepId> pick(const std::vector<Schedule>& schedules, std::mt19937& random,
                            Eligible eligible) {
  std::vector<std::pair<int, StepId>> found;
  for (const Schedule& schedule : schedules) {
    for (StepId id = 0; id < schedule.steps.size(); ++id) {
      if (eligible(schedule.steps[id])) found.emplace_back(schedule.rank, id);
    }
  }
  if (found.empty()) return {-1, 0};
  return found[random() % found.size()];
}

Step& at(std::vector<Schedule>& schedules, std::pair<int, StepId> where) {
  return schedules[static_cast<std::size_t>(where.first)].steps[where.second];
}

/// A step that keeps its number but does nothing, whatever came before or after it.
void disarm(Step& step) {
  step =
      Step{.kind = StepKind::kCopy, .sources = {Range{.rank = 0, .count = 0}}, .after = step.after};
}

bool drop_step(std::vector<Schedule>& schedules, const ProcessGrid&, std::mt19937& random) {
  const auto where = pick(schedules, random, [](const Step&) { return true; });
  if (where.first < 0) return false;
  disarm(at(schedules, where));
  at(schedules, where).sources[0].rank = where.first;
  return true;
}

bool misdirect(std::vector<Schedule>& schedules, const ProcessGrid&, std::mt19937& random) {
  const auto where = pick(schedules, random, [](const Step& step) { return step.peer >= 0; });
  if (where.first < 0 || schedules.size() < 3) return false;
  Step& step = at(schedules, where);
  do {
    step.peer = (step.peer + 1) % static_cast<int>(schedules.size());
  } while (step.peer == where.first);
  return true;
}

bool shift_range(std::vector<Schedule>& schedules, const ProcessGrid&, std::mt19937& random) {
  const auto where = pick(schedules, random, [](const Step& step) {
    return step.kind == StepKind::kRecv && step.target.region == Region::kBucket &&
           step.target.count > 1;
  });
  if (where.first < 0) return false;
  --at(schedules, where).target.count;
  return true;
}

/// Copies or unpacks elements from a place where others are.
bool mistake_elements(std::vector<Schedule>& schedules, const ProcessGrid&, std::mt19937& random) {
  const auto where = pick(schedules, random, [](const Step& step) {
    return step.kind == StepKind::kUnpack && step.sources[0].offset >= step.sources[0].count;
  });
  if (where.first < 0) return false;
  Range& source = at(schedules, where).sources[0];
  source.offset -= source.count;
  return true;
}

bool sum_twice(std::vector<Schedule>& schedules, const ProcessGrid&, std::mt19937& random) {
  const auto where =
      pick(schedules, random, [](const Step& step) { return step.kind == StepKind::kReduce; });
  if (where.first < 0) return false;
  Step& step = at(schedules, where);
  step.sources.push_back(step.sources.front());
  return true;
}

bool forget_scale(std::vector<Schedule>& schedules, const ProcessGrid&, std::mt19937& random) {
  const auto where = pick(schedules, random, [](const Step& step) { return step.finishes; });
  if (where.first < 0) return false;
  at(schedules, where).finishes = false;
  return true;
}

bool drop_mirror(std::vector<Schedule>& schedules, const ProcessGrid&, std::mt19937& random) {
  const auto where =
      pick(schedules, random, [](const Step& step) { return !step.mirrors.empty(); });
  if (where.first < 0) return false;
  at(schedules, where).mirrors.pop_back();
  return true;
}

/// Writes a sum to where another element belongs, or where another chunk is.
bool misplace_mirror(std::vector<Schedule>& schedules, const ProcessGrid&, std::mt19937& random) {
  const auto where = pick(schedules, random, [](const Step& step) {
    return !step.mirrors.empty() && step.mirrors[0].offset > 0;
  });
  if (where.first < 0) return false;
  --at(schedules, where).mirrors[0].offset;
  return true;
}

/// Nobody raises a certain flag and nobody waits for it.
bool drop_flag(std::vector<Schedule>& schedules, const ProcessGrid&, std::mt19937& random) {
  const auto where =
      pick(schedules, random, [](const Step& step) { return step.kind == StepKind::kSignal; });
  if (where.first < 0) return false;
  const Step signal = at(schedules, where);
  for (Step& step : schedules[static_cast<std::size_t>(signal.peer)].steps) {
    if (step.kind != StepKind::kAwait || step.peer != where.first) continue;
    if (step.ordinal != signal.ordinal) continue;
    disarm(step);
    step.sources[0].rank = signal.peer;
  }
  disarm(at(schedules, where));
  at(schedules, where).sources[0].rank = where.first;
  return true;
}

/// A step that writes no longer waits for a flag, and nothing else orders it after the flag.
bool lose_await(std::vector<Schedule>& schedules, const ProcessGrid& grid, std::mt19937& random) {
  for (int attempt = 0; attempt < 200; ++attempt) {
    const auto where = pick(schedules, random, [](const Step& step) {
      return step.target.count > 0 && !step.after.empty();
    });
    if (where.first < 0) return false;
    Step& step = at(schedules, where);
    const std::size_t index = random() % step.after.size();
    const StepId earlier = step.after[index];
    if (at(schedules, {where.first, earlier}).kind != StepKind::kAwait) continue;
    step.after.erase(step.after.begin() + static_cast<std::ptrdiff_t>(index));
    if (!test::ordered(schedules, grid, {where.first, earlier}, where)) return true;
    step.after.push_back(earlier);
  }
  return false;
}

/// Unpacks what a peer has not summed, or packs over it.
bool exchange_early(std::vector<Schedule>& schedules, const ProcessGrid&, std::mt19937& random) {
  const auto where =
      pick(schedules, random, [](const Step& step) { return step.kind == StepKind::kExchange; });
  if (where.first < 0) return false;
  at(schedules, where).after.clear();
  return true;
}

/// Packs what the former chunk of the slot has there, or another chunk.
bool exchange_other_elements(std::vector<Schedule>& schedules, const ProcessGrid&,
                             std::mt19937& random) {
  const auto where =
      pick(schedules, random, [](const Step& step) { return step.kind == StepKind::kExchange; });
  if (where.first < 0) return false;
  Step& step = at(schedules, where);
  std::swap(step.mirrors[0], step.sources[1]);
  return true;
}

/// A slot is packed again although its former chunk is not unpacked.
bool reuse_slot_early(std::vector<Schedule>& schedules, const ProcessGrid&, std::mt19937& random) {
  const auto where = pick(schedules, random, [](const Step& step) {
    return step.kind == StepKind::kPack && step.target.region == Region::kStaging &&
           !step.after.empty();
  });
  if (where.first < 0) return false;
  at(schedules, where).after.clear();
  return true;
}

/// What peers still read when an iteration has ended is overwritten by the next.
bool take_no_turns(std::vector<Schedule>& schedules, const ProcessGrid& grid, std::mt19937&) {
  if (schedules[0].staging_turns < 2 || grid.num_nodes() == grid.world_size()) return false;
  for (Schedule& schedule : schedules) schedule.staging_turns = 1;
  return true;
}

bool disagree_about_arena(std::vector<Schedule>& schedules, const ProcessGrid& grid,
                          std::mt19937& random) {
  const auto rank = static_cast<std::size_t>(random() % schedules.size());
  if (grid.ranks_of_node(grid.node(static_cast<int>(rank))).size() == 1) return false;
  switch (random() % 3) {
    case 0:
      ++schedules[rank].staging_count;
      return true;
    case 1:
      ++schedules[rank].staging_turns;
      return true;
    default:
      schedules[rank].has_bucket = !schedules[rank].has_bucket;
      return true;
  }
}

bool wait_in_circle(std::vector<Schedule>& schedules, const ProcessGrid&, std::mt19937& random) {
  const auto where = pick(schedules, random, [](const Step& step) { return !step.after.empty(); });
  if (where.first < 0) return false;
  const StepId earlier = at(schedules, where).after.front();
  at(schedules, {where.first, earlier}).after.push_back(where.second);
  return true;
}

/// Loses one dependency that is needed: its steps touch one range, one of them writes, and nothing
/// else orders them.
bool lose_dependency(std::vector<Schedule>& schedules, const ProcessGrid& grid,
                     std::mt19937& random) {
  const auto conflict = [](const Step& a, const Step& b) {
    const auto outputs = [](const Step& step) {
      std::vector<Range> ranges = step.mirrors;
      if (step.target.count > 0) ranges.push_back(step.target);
      return ranges;
    };
    const auto any_overlap = [](const std::vector<Range>& left, const std::vector<Range>& right) {
      return std::any_of(left.begin(), left.end(), [&](const Range& range) {
        return std::any_of(right.begin(), right.end(),
                           [&](const Range& other) { return range.overlaps(other); });
      });
    };
    return any_overlap(outputs(a), b.sources) || any_overlap(outputs(b), a.sources) ||
           any_overlap(outputs(a), outputs(b));
  };
  for (int attempt = 0; attempt < 200; ++attempt) {
    const auto where =
        pick(schedules, random, [](const Step& step) { return !step.after.empty(); });
    if (where.first < 0) return false;
    Step& step = at(schedules, where);
    const std::size_t index = random() % step.after.size();
    const std::pair<int, StepId> earlier{where.first, step.after[index]};
    if (!conflict(at(schedules, earlier), step)) continue;
    step.after.erase(step.after.begin() + static_cast<std::ptrdiff_t>(index));
    if (!test::ordered(schedules, grid, earlier, where)) return true;
    step.after.push_back(earlier.second);
  }
  return false;
}

struct Case {
  std::vector<int> nodes;
  std::string algorithm;
  Placement placement = Placement::kStaged;
};

class Mutations : public testing::TestWithParam<Case> {};

TEST_P(Mutations, AreCaught) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes(GetParam().nodes);
  const BucketLayout layout{.count = 200, .placement = GetParam().placement};
  const CompileOptions options{.algorithm = GetParam().algorithm, .chunk_bytes = 256, .window = 2};
  const std::vector<Schedule> correct = compile_all(grid, layout, options);
  const Goal goal = Goal::all_reduce(grid.world_size());
  ASSERT_EQ(verify(correct, grid, goal), std::nullopt);

  const std::pair<const char*, Mutation> mutations[] = {
      {"drop_step", drop_step},
      {"misdirect", misdirect},
      {"shift_range", shift_range},
      {"mistake_elements", mistake_elements},
      {"sum_twice", sum_twice},
      {"forget_scale", forget_scale},
      {"drop_mirror", drop_mirror},
      {"misplace_mirror", misplace_mirror},
      {"drop_flag", drop_flag},
      {"lose_await", lose_await},
      {"exchange_early", exchange_early},
      {"exchange_other_elements", exchange_other_elements},
      {"reuse_slot_early", reuse_slot_early},
      {"take_no_turns", take_no_turns},
      {"disagree_about_arena", disagree_about_arena},
      {"wait_in_circle", wait_in_circle},
      {"lose_dependency", lose_dependency}};
  for (const auto& [name, mutate] : mutations) {
    for (unsigned seed = 0; seed < 40; ++seed) {
      std::mt19937 random(seed);
      std::vector<Schedule> damaged = correct;
      if (!mutate(damaged, grid, random)) continue;
      EXPECT_NE(verify(damaged, grid, goal), std::nullopt) << name << " seed " << seed;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Algorithms, Mutations,
                         testing::Values(Case{{4}, "ring"}, Case{{5}, "direct"},
                                         Case{{2, 2}, "direct"}, Case{{6}, "halving_doubling"},
                                         Case{{1, 1, 1, 1}, "halving_doubling"}, Case{{5}, "tree"},
                                         Case{{2, 3}, "hierarchical:direct,ring"},
                                         Case{{2, 2}, "hierarchical:direct,direct"},
                                         Case{{3, 3}, "hierarchical:ring,halving_doubling"},
                                         Case{{4}, "direct", Placement::kInPlace},
                                         Case{{3}, "direct", Placement::kUser},
                                         Case{{4}, "flat", Placement::kInPlace}, Case{{3}, "flat"},
                                         Case{{2, 3}, "flat", Placement::kUser}));

/// How often a mutation finds something to damage, over all cases above, is a test of its own: one
/// that finds nothing would prove nothing.
TEST(Verifier, EachMutationHasItsTarget) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes({3});
  const auto windowed = compile_all(grid, {.count = 200, .placement = Placement::kUser},
                                    {.algorithm = "direct", .chunk_bytes = 256, .window = 2});
  const auto flat = compile_all(grid, {.count = 200}, {.algorithm = "flat"});
  const auto damages = [&](const std::vector<Schedule>& correct, Mutation mutate) {
    std::vector<Schedule> damaged = correct;
    std::mt19937 random(1);
    return mutate(damaged, grid, random);
  };
  for (Mutation mutate : {drop_mirror, misplace_mirror, drop_flag, lose_await, exchange_early,
                          exchange_other_elements, reuse_slot_early, lose_dependency}) {
    EXPECT_TRUE(damages(windowed, mutate));
  }
  EXPECT_TRUE(damages(flat, take_no_turns));
  EXPECT_TRUE(damages(flat, lose_await));
}

TEST(Verifier, NamesRankAndStep) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes({1, 1});
  std::vector<Schedule> schedules = compile_all(grid, {.count = 64}, {.algorithm = "ring"});
  schedules[1].steps.pop_back();
  const auto wrong = verify(schedules, grid, Goal::all_reduce(2));
  ASSERT_TRUE(wrong);
  EXPECT_THAT(*wrong, HasSubstr("rank "));
  EXPECT_THAT(*wrong, HasSubstr("step "));
}

// Out of place, results are not contributions, and contributions are not to be touched.
TEST(Verifier, KeepsInputAndResultApart) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes({3});
  const BucketLayout layout{.count = 200, .placement = Placement::kUser, .out_of_place = true};
  const std::vector<Schedule> correct = compile_all(grid, layout, {.algorithm = "direct"});
  ASSERT_EQ(verify(correct, grid, Goal::all_reduce(3)), std::nullopt);

  const auto is_reduction = [](const Step& step) { return step.kind == StepKind::kReduce; };
  std::vector<Schedule> damaged = correct;
  auto reduction = std::ranges::find_if(damaged[1].steps, is_reduction);
  ASSERT_NE(reduction, damaged[1].steps.end());
  ASSERT_EQ(reduction->sources[1].region, Region::kInput);
  reduction->sources[1].region = Region::kUser;
  EXPECT_NE(verify(damaged, grid, Goal::all_reduce(3)), std::nullopt);

  damaged = correct;
  reduction = std::ranges::find_if(damaged[1].steps, is_reduction);
  reduction->target.region = Region::kInput;
  const auto wrong = verify(damaged, grid, Goal::all_reduce(3));
  ASSERT_TRUE(wrong);
  EXPECT_THAT(*wrong, HasSubstr("only read"));
}

TEST(Verifier, RejectsFlagsAndMemoryAcrossNodes) {
  const ProcessGrid together = ProcessGrid::with_node_sizes({2});
  const ProcessGrid apart = ProcessGrid::with_node_sizes({1, 1});
  const auto schedules = compile_all(together, {.count = 64}, {.algorithm = "direct"});
  EXPECT_EQ(verify(schedules, together, Goal::all_reduce(2)), std::nullopt);
  EXPECT_NE(verify(schedules, apart, Goal::all_reduce(2)), std::nullopt);
}

}  // namespace
}  // namespace kolo
