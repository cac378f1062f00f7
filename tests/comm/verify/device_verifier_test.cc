#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "comm/algorithms/chunking.h"
#include "comm/algorithms/compile.h"
#include "comm/schedule/schedule_builder.h"
#include "comm/verify/verifier.h"
#include "tests/support/compiled_schedules.h"
#include "tests/support/schedule_order.h"

namespace kolo {
namespace {

using testing::HasSubstr;

using Schedules = std::vector<Schedule>;
/// Rank and step.
using Place = std::pair<std::size_t, StepId>;

Step& at(Schedules& schedules, Place where) { return schedules[where.first].steps[where.second]; }

template <typename Eligible>
std::optional<Place> pick(const Schedules& schedules, std::mt19937& random, Eligible eligible) {
  std::vector<Place> found;
  for (std::size_t rank = 0; rank < schedules.size(); ++rank) {
    for (StepId id = 0; id < schedules[rank].steps.size(); ++id) {
      if (eligible(schedules[rank].steps[id])) found.emplace_back(rank, id);
    }
  }
  if (found.empty()) return std::nullopt;
  return found[random() % found.size()];
}

bool is_native(const Step& step) { return step.kind == StepKind::kNative; }

/// A step that keeps its number and its dependencies, but does nothing.
void disarm(Schedules& schedules, Place where) {
  Step& step = at(schedules, where);
  step = Step{.kind = StepKind::kCopy,
              .sources = {Range{.rank = static_cast<int>(where.first)}},
              .after = step.after};
}

/// Damages correct schedules; returns false if there is nothing of the kind to damage.
using Mutation = bool (*)(Schedules&, const ProcessGrid&, std::mt19937&);

bool drop_native(Schedules& schedules, const ProcessGrid&, std::mt19937& random) {
  const auto where = pick(schedules, random, is_native);
  if (!where) return false;
  disarm(schedules, *where);
  return true;
}

/// Two native steps of one rank trade places in its order of launches.
bool swap_natives(Schedules& schedules, const ProcessGrid&, std::mt19937& random) {
  const auto where =
      pick(schedules, random, [](const Step& step) { return is_native(step) && step.ordinal > 0; });
  if (!where) return false;
  for (Step& other : schedules[where->first].steps) {
    if (is_native(other) && other.ordinal + 1 == at(schedules, *where).ordinal) {
      std::swap(other.ordinal, at(schedules, *where).ordinal);
      return true;
    }
  }
  return false;
}

bool launch_in_any_order(Schedules& schedules, const ProcessGrid&, std::mt19937& random) {
  const auto where =
      pick(schedules, random, [](const Step& step) { return is_native(step) && step.ordinal > 0; });
  if (!where) return false;
  at(schedules, *where).after.clear();
  return true;
}

bool mistake_operation(Schedules& schedules, const ProcessGrid&, std::mt19937& random) {
  const auto where = pick(schedules, random, is_native);
  if (!where) return false;
  Step& step = at(schedules, *where);
  step.native = step.native == NativeOp::kAllReduce ? NativeOp::kAllGather : NativeOp::kAllReduce;
  return true;
}

bool mistake_group(Schedules& schedules, const ProcessGrid&, std::mt19937& random) {
  const auto where = pick(schedules, random, is_native);
  if (!where) return false;
  Step& step = at(schedules, *where);
  step.group = step.group == NativeGroup::kNode ? NativeGroup::kWorld : NativeGroup::kNode;
  return true;
}

bool cut_unequally(Schedules& schedules, const ProcessGrid&, std::mt19937& random) {
  const auto where = pick(schedules, random, is_native);
  if (!where) return false;
  Step& step = at(schedules, *where);
  --(random() % 2 == 0 ? step.target : step.sources[0]).count;
  return true;
}

bool misplace_part(Schedules& schedules, const ProcessGrid&, std::mt19937& random) {
  const auto where = pick(schedules, random, [](const Step& step) {
    return is_native(step) && step.native != NativeOp::kAllReduce;
  });
  if (!where) return false;
  Step& step = at(schedules, *where);
  Range& part = step.native == NativeOp::kReduceScatter ? step.target : step.sources[0];
  part.offset += part.offset == 0 ? part.count : 0 - part.count;
  return true;
}

bool forget_scale(Schedules& schedules, const ProcessGrid&, std::mt19937& random) {
  const auto where = pick(schedules, random, [](const Step& step) { return step.finishes; });
  if (!where) return false;
  at(schedules, *where).finishes = false;
  return true;
}

bool scale_twice(Schedules& schedules, const ProcessGrid&, std::mt19937& random) {
  const auto where = pick(schedules, random, [](const Step& step) {
    return !step.finishes && (is_native(step) || step.kind == StepKind::kReduce);
  });
  if (!where) return false;
  at(schedules, *where).finishes = true;
  return true;
}

bool touches_staging(const Step& step) {
  const auto is_staging = [](const Range& range) { return range.region == Region::kStaging; };
  return is_staging(step.target) ||
         std::any_of(step.sources.begin(), step.sources.end(), is_staging);
}

bool drop_copy(Schedules& schedules, const ProcessGrid&, std::mt19937& random) {
  const auto where = pick(schedules, random, [](const Step& step) {
    return step.kind == StepKind::kCopy && touches_staging(step);
  });
  if (!where) return false;
  disarm(schedules, *where);
  return true;
}

/// A slot of staging memory is used again although nothing says that its former use is over.
bool reuse_slot_early(Schedules& schedules, const ProcessGrid& grid, std::mt19937& random) {
  const auto overlap = [](const Range& slot, const std::vector<Range>& sources) {
    return std::any_of(sources.begin(), sources.end(),
                       [&](const Range& source) { return source.overlaps(slot); });
  };
  for (int attempt = 0; attempt < 200; ++attempt) {
    const auto where = pick(schedules, random, [](const Step& step) {
      return step.target.region == Region::kStaging && !step.after.empty();
    });
    if (!where) return false;
    Step& step = at(schedules, *where);
    const auto lost =
        step.after.begin() + static_cast<std::ptrdiff_t>(random() % step.after.size());
    const StepId earlier = *lost;
    if (!overlap(step.target, schedules[where->first].steps[earlier].sources)) continue;
    step.after.erase(lost);
    const int rank = static_cast<int>(where->first);
    if (!test::ordered(schedules, grid, {rank, earlier}, {rank, where->second})) return true;
    step.after.push_back(earlier);
  }
  return false;
}

bool send_from_device(Schedules& schedules, const ProcessGrid&, std::mt19937& random) {
  const auto where =
      pick(schedules, random, [](const Step& step) { return step.kind == StepKind::kSend; });
  if (!where) return false;
  Range& source = at(schedules, *where).sources[0];
  source.region = Region::kBucket;
  source.offset = 0;
  return true;
}

bool exceed_staging(Schedules& schedules, const ProcessGrid&, std::mt19937& random) {
  const auto where = pick(schedules, random, touches_staging);
  if (!where) return false;
  --schedules[where->first].staging_count;
  const auto beyond = [&](const Step& step) {
    const auto is_last = [&](const Range& range) {
      return range.region == Region::kStaging &&
             range.end() > schedules[where->first].staging_count;
    };
    return is_last(step.target) || std::any_of(step.sources.begin(), step.sources.end(), is_last);
  };
  const auto& steps = schedules[where->first].steps;
  return std::any_of(steps.begin(), steps.end(), beyond);
}

struct Case {
  std::vector<int> nodes;
  std::string algorithm;
  std::vector<std::string> not_found =
      {};  ///< Mutations for which this case has nothing to damage.
};

constexpr std::size_t kSlots = 4;  // per direction, of the smallest part

Schedules compile_all(const ProcessGrid& grid, const std::string& algorithm, Placement placement) {
  const std::size_t padding = device_padding(grid, DType::kFloat32);
  const BucketLayout layout{
      .count = 4 * padding, .placement = placement, .memory = MemoryKind::kDevice};
  const CompileOptions options{.algorithm = algorithm,
                               .device_chunk_bytes = padding * sizeof(float),
                               .staging_bytes = kSlots * kWireAlignment};
  return test::compile_all(grid, layout, options);
}

class DeviceMutations : public testing::TestWithParam<Case> {};

TEST_P(DeviceMutations, AreCaught) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes(GetParam().nodes);
  const Goal goal = Goal::all_reduce(grid.world_size());
  const Schedules correct = compile_all(grid, GetParam().algorithm, Placement::kStaged);
  const auto complaint = verify(correct, grid, goal);
  ASSERT_EQ(complaint, std::nullopt) << *complaint;

  const std::pair<const char*, Mutation> mutations[] = {
      {"drop_native", drop_native},
      {"swap_natives", swap_natives},
      {"launch_in_any_order", launch_in_any_order},
      {"mistake_operation", mistake_operation},
      {"mistake_group", mistake_group},
      {"cut_unequally", cut_unequally},
      {"misplace_part", misplace_part},
      {"forget_scale", forget_scale},
      {"scale_twice", scale_twice},
      {"drop_copy", drop_copy},
      {"reuse_slot_early", reuse_slot_early},
      {"send_from_device", send_from_device},
      {"exceed_staging", exceed_staging}};
  std::vector<std::string> not_found;
  for (const auto& [name, mutate] : mutations) {
    int damaged_sets = 0;
    for (unsigned seed = 0; seed < 40; ++seed) {
      std::mt19937 random(seed);
      Schedules damaged = correct;
      if (!mutate(damaged, grid, random)) continue;
      ++damaged_sets;
      EXPECT_NE(verify(damaged, grid, goal), std::nullopt) << name << " seed " << seed;
    }
    if (damaged_sets == 0) not_found.emplace_back(name);
  }
  EXPECT_EQ(not_found, GetParam().not_found);
}

INSTANTIATE_TEST_SUITE_P(
    Algorithms, DeviceMutations,
    testing::Values(Case{{4},
                         "native",
                         {"misplace_part", "scale_twice", "drop_copy", "reuse_slot_early",
                          "send_from_device", "exceed_staging"}},
                    Case{{3},
                         "hierarchical:native,ring",
                         {"drop_copy", "reuse_slot_early", "send_from_device", "exceed_staging"}},
                    Case{{2, 2, 2}, "hierarchical:native,ring"},
                    Case{{2, 2, 2}, "hierarchical:native,direct"},
                    Case{{3, 1, 2}, "hierarchical:native,halving_doubling"},
                    Case{{2, 2, 2}, "hierarchical:native,tree"}));

// Two ranks that each send while their only slots are behind those sends.
TEST(DeviceVerifier, FindsCirclesOfSendsThatLastUntilTheyAreReceived) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes({1, 1});
  const BucketLayout layout{.count = 32, .memory = MemoryKind::kDevice};
  const auto make = [&](std::size_t receive_slot) {
    Schedules schedules;
    for (int rank = 0; rank < 2; ++rank) {
      const int peer = 1 - rank;
      const Range mine{rank, Region::kBucket, 0, 32}, sent{rank, Region::kStaging, 0, 32},
          received{rank, Region::kStaging, receive_slot, 32}, theirs{rank, Region::kScratch, 0, 32};
      Schedule schedule;
      schedule.rank = rank;
      schedule.layout = layout;
      schedule.scratch_count = 32;
      schedule.staging_count = 64;
      schedule.steps = {
          {.kind = StepKind::kCopy, .target = sent, .sources = {mine}},
          {.kind = StepKind::kSend, .peer = peer, .sources = {sent}, .after = {0}},
          {.kind = StepKind::kRecv, .peer = peer, .target = received, .after = {}},
          {.kind = StepKind::kCopy, .target = theirs, .sources = {received}, .after = {2}},
          {.kind = StepKind::kReduce,
           .target = mine,
           .sources = {mine, theirs},
           .finishes = true,
           .after = {0, 3}}};
      if (rank == 1)
        std::reverse(schedule.steps.back().sources.begin(), schedule.steps.back().sources.end());
      if (received.overlaps(sent)) schedule.steps[2].after = {1};
      schedules.push_back(std::move(schedule));
    }
    return schedules;
  };
  EXPECT_EQ(verify(make(32), grid, Goal::all_reduce(2)), std::nullopt);
  const auto wrong = verify(make(0), grid, Goal::all_reduce(2));
  ASSERT_TRUE(wrong);
  EXPECT_THAT(*wrong, HasSubstr("circle"));
  EXPECT_THAT(*wrong, HasSubstr("until they are received"));
}

// Node and world collectives in different orders on two ranks: each waits for the other's first.
TEST(DeviceVerifier, FindsContradictoryOrdersOfLaunches) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes({2, 1});
  const BucketLayout layout{.count = 64, .memory = MemoryKind::kDevice};
  const auto make = [&](bool contradictory) {
    Schedules schedules;
    for (int rank = 0; rank < 3; ++rank) {
      ScheduleBuilder builder(rank, "by hand", layout);
      const Range first = builder.bucket(0, 32), second = builder.bucket(32, 32);
      builder.native(NativeOp::kAllReduce, NativeGroup::kWorld, first, first, true);
      builder.native(NativeOp::kAllReduce, NativeGroup::kWorld, second, second, true);
      schedules.push_back(std::move(builder).build());
    }
    if (contradictory) {
      std::vector<Step>& steps = schedules[1].steps;
      steps[0].after = {1};
      steps[1].after = {};
    }
    return schedules;
  };
  EXPECT_EQ(verify(make(false), grid, Goal::all_reduce(3)), std::nullopt);
  const auto wrong = verify(make(true), grid, Goal::all_reduce(3));
  ASSERT_TRUE(wrong);
  EXPECT_THAT(*wrong, HasSubstr("circle"));
}

TEST(DeviceVerifier, AnAllReduceReadsAndWritesAsMuchOfMemoryThatDoesNotOverlap) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes({2});
  const auto verdict = [&](const Range& source, const Range& target) {
    Schedules schedules;
    for (int rank = 0; rank < 2; ++rank) {
      ScheduleBuilder builder(rank, "by hand", {.count = 64, .memory = MemoryKind::kDevice});
      const auto own = [rank](Range range) {
        range.rank = rank;
        return range;
      };
      builder.native(NativeOp::kAllReduce, NativeGroup::kWorld, own(target), own(source), true);
      schedules.push_back(std::move(builder).build());
    }
    return verify(schedules, grid, Goal::all_reduce(2)).value_or("");
  };
  const Range all{.count = 64}, shorter{.count = 48}, later{.offset = 16, .count = 48};
  EXPECT_EQ(verdict(all, all), "");
  EXPECT_THAT(verdict(shorter, later), HasSubstr("writes over elements that it has not read"));
  EXPECT_THAT(verdict(all, shorter), HasSubstr("has its whole in two lengths"));
}

TEST(DeviceVerifier, RejectsWhatDevicesDoNotShare) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes({2});
  const BucketLayout host{.count = 64};
  Schedules schedules;
  for (int rank = 0; rank < 2; ++rank) {
    schedules.push_back(test::compile_all_reduce(rank, host, grid, {.algorithm = "direct"}));
  }
  ASSERT_EQ(verify(schedules, grid, Goal::all_reduce(2)), std::nullopt);
  for (Schedule& schedule : schedules) schedule.layout.memory = MemoryKind::kDevice;
  EXPECT_NE(verify(schedules, grid, Goal::all_reduce(2)), std::nullopt);

  Schedules native = compile_all(grid, "native", Placement::kInPlace);
  ASSERT_EQ(verify(native, grid, Goal::all_reduce(2)), std::nullopt);
  for (Schedule& schedule : native) schedule.layout.memory = MemoryKind::kHost;
  EXPECT_NE(verify(native, grid, Goal::all_reduce(2)), std::nullopt);
}

TEST(DeviceVerifier, LetsTheNetworkTakeDeviceMemoryOnlyIfItCan) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes({2, 2});
  const BucketLayout layout{.count = 2 * device_padding(grid, DType::kFloat32),
                            .memory = MemoryKind::kDevice};
  Schedules schedules;
  for (int rank = 0; rank < 4; ++rank) {
    schedules.push_back(test::compile_all_reduce(
        rank, layout, grid,
        {.algorithm = "hierarchical:native,ring", .network_takes_device_memory = true}));
    EXPECT_EQ(schedules.back().staging_count, 0u);
  }
  const Goal goal = Goal::all_reduce(4);
  EXPECT_EQ(verify(schedules, grid, goal, {.network_takes_device_memory = true}), std::nullopt);
  const auto wrong = verify(schedules, grid, goal);
  ASSERT_TRUE(wrong);
  EXPECT_THAT(*wrong, HasSubstr("device memory to the network"));
}

}  // namespace
}  // namespace kolo
