#include <gmock/gmock.h>

#include <random>

#include "comm/algorithms/chunking.h"
#include "comm/algorithms/compile.h"
#include "comm/schedule/schedule_builder.h"
#include "comm/verify/verifier.h"
#include "tests/comm/verify/mutations.h"
#include "tests/support/compiled_schedules.h"

namespace kolo {
namespace {

using testing::HasSubstr;

using test::change_a_step;
using test::drop_a_step;
using test::Mutation;
using test::pick;
using test::Schedules;

bool is_native(const Step& step) { return step.kind == StepKind::kNative; }
bool is_later_native(const Step& step) { return is_native(step) && step.ordinal > 0; }

/// Swaps two native steps in one rank's order of launches.
bool swap_natives(Schedules& schedules, const ProcessGrid&, std::mt19937& random) {
  const auto where = pick(schedules, random, is_later_native);
  if (!where) return false;
  Step& step = test::at(schedules, *where);
  for (Step& other : schedules[where->first].steps) {
    if (is_native(other) && other.ordinal + 1 == step.ordinal) {
      std::swap(other.ordinal, step.ordinal);
      return true;
    }
  }
  return false;
}

bool cut_unequally(Schedules& schedules, const ProcessGrid&, std::mt19937& random) {
  const auto where = pick(schedules, random, is_native);
  if (!where) return false;
  Step& step = test::at(schedules, *where);
  --(random() % 2 == 0 ? step.target : step.sources[0]).count;
  return true;
}

bool is_staging(const Range& range) { return range.region == Region::kStaging; }
bool touches_staging(const Step& step) {
  return is_staging(step.target) || std::ranges::any_of(step.sources, is_staging);
}

bool exceed_staging(Schedules& schedules, const ProcessGrid&, std::mt19937& random) {
  const auto where = pick(schedules, random, touches_staging);
  if (!where) return false;
  Schedule& schedule = schedules[where->first];
  --schedule.staging_count;
  const auto is_beyond = [&](const Range& range) {
    return is_staging(range) && range.end() > schedule.staging_count;
  };
  return std::ranges::any_of(schedule.steps, [&](const Step& step) {
    return is_beyond(step.target) || std::ranges::any_of(step.sources, is_beyond);
  });
}

const Mutation kDeviceMutations[] = {
    {"drop_native", drop_a_step(is_native)},
    {"swap_natives", swap_natives},
    {"launch_in_any_order", change_a_step(is_later_native, [](Step& step) { step.after.clear(); })},
    {"mistake_operation", change_a_step(is_native,
                                        [](Step& step) {
                                          step.native = step.native == NativeOp::kAllReduce
                                                            ? NativeOp::kAllGather
                                                            : NativeOp::kAllReduce;
                                        })},
    {"mistake_group", change_a_step(is_native,
                                    [](Step& step) {
                                      step.group = step.group == NativeGroup::kNode
                                                       ? NativeGroup::kWorld
                                                       : NativeGroup::kNode;
                                    })},
    {"cut_unequally", cut_unequally},
    {"misplace_part",
     change_a_step(
         [](const Step& step) { return is_native(step) && step.native != NativeOp::kAllReduce; },
         [](Step& step) {
           Range& part = step.native == NativeOp::kReduceScatter ? step.target : step.sources[0];
           part.offset += part.offset == 0 ? part.count : 0 - part.count;
         })},
    {"forget_scale", change_a_step([](const Step& step) { return step.finishes; },
                                   [](Step& step) { step.finishes = false; })},
    {"scale_twice", change_a_step(
                        [](const Step& step) {
                          return !step.finishes &&
                                 (is_native(step) || step.kind == StepKind::kReduce);
                        },
                        [](Step& step) { step.finishes = true; })},
    {"drop_copy", drop_a_step([](const Step& step) {
       return step.kind == StepKind::kCopy && touches_staging(step);
     })},
    // Reuses a slot of staging memory before its previous use is certainly over.
    {"reuse_slot_early",
     test::lose_an_order([](const Step& step) { return is_staging(step.target); },
                         [](const Step& earlier, const Step& step) {
                           return std::ranges::any_of(earlier.sources, [&](const Range& source) {
                             return source.overlaps(step.target);
                           });
                         })},
    {"send_from_device",
     change_a_step([](const Step& step) { return step.kind == StepKind::kSend; },
                   [](Step& step) {
                     step.sources[0].region = Region::kBucket;
                     step.sources[0].offset = 0;
                   })},
    {"exceed_staging", exceed_staging}};

struct Case {
  std::vector<int> nodes;
  std::string algorithm;
  std::vector<std::string> not_found = {};  ///< Mutations that find nothing in this case.
  DType dtype = DType::kFloat32;
};

constexpr std::size_t kSlots = 4;  // slots of the smallest part, per direction

Schedules compile_all(const ProcessGrid& grid, const std::string& algorithm, Placement placement,
                      DType dtype = DType::kFloat32) {
  const std::size_t padding = device_padding(grid, dtype);
  const BucketLayout layout{.count = 4 * padding,
                            .dtype = dtype,
                            .op = ReduceOp::kAverage,
                            .placement = placement,
                            .memory = MemoryKind::kDevice};
  const CompileOptions options{.algorithm = algorithm,
                               .device_chunk_bytes = padding * size_of(dtype),
                               .staging_bytes = kSlots * kWireAlignment};
  return test::compile_all(grid, layout, options);
}

class DeviceMutations : public testing::TestWithParam<Case> {};

TEST_P(DeviceMutations, AreCaught) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes(GetParam().nodes);
  const Schedules correct =
      compile_all(grid, GetParam().algorithm, Placement::kStaged, GetParam().dtype);
  EXPECT_EQ(test::expect_caught(correct, grid, CollectiveSpec::all_reduce(grid.world_size()),
                                kDeviceMutations),
            GetParam().not_found);
}

INSTANTIATE_TEST_SUITE_P(
    Algorithms, DeviceMutations,
    testing::Values(Case{{4},
                         "native",
                         {"swap_natives", "launch_in_any_order", "misplace_part", "scale_twice",
                          "drop_copy", "reuse_slot_early", "send_from_device", "exceed_staging"}},
                    Case{{3},
                         "hierarchical:native,ring",
                         {"drop_copy", "reuse_slot_early", "send_from_device", "exceed_staging"}},
                    Case{{2, 2, 2}, "hierarchical:native,ring"},
                    Case{{2, 2, 2}, "hierarchical:native,direct"},
                    Case{{2, 2, 2}, "hierarchical:native,direct", {}, DType::kFloat16},
                    Case{{3, 1, 2}, "hierarchical:native,halving_doubling"}));

// Each of two ranks receives into the slot from which it sends, so its send must end first.
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
  EXPECT_EQ(verify(make(32), grid, CollectiveSpec::all_reduce(2)), std::nullopt);
  const auto wrong = verify(make(0), grid, CollectiveSpec::all_reduce(2));
  ASSERT_TRUE(wrong);
  EXPECT_THAT(*wrong, HasSubstr("circle"));
  EXPECT_THAT(*wrong, HasSubstr("until they are received"));
}

// Two ranks launch the same two collectives in opposite orders, so each waits for the other.
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
  EXPECT_EQ(verify(make(false), grid, CollectiveSpec::all_reduce(3)), std::nullopt);
  const auto wrong = verify(make(true), grid, CollectiveSpec::all_reduce(3));
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
    return verify(schedules, grid, CollectiveSpec::all_reduce(2)).value_or("");
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
  ASSERT_EQ(verify(schedules, grid, CollectiveSpec::all_reduce(2)), std::nullopt);
  for (Schedule& schedule : schedules) schedule.layout.memory = MemoryKind::kDevice;
  EXPECT_NE(verify(schedules, grid, CollectiveSpec::all_reduce(2)), std::nullopt);

  Schedules native = compile_all(grid, "native", Placement::kInPlace);
  ASSERT_EQ(verify(native, grid, CollectiveSpec::all_reduce(2)), std::nullopt);
  for (Schedule& schedule : native) schedule.layout.memory = MemoryKind::kHost;
  EXPECT_NE(verify(native, grid, CollectiveSpec::all_reduce(2)), std::nullopt);
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
  const CollectiveSpec spec = CollectiveSpec::all_reduce(4);
  EXPECT_EQ(verify(schedules, grid, spec, {.network_takes_device_memory = true}), std::nullopt);
  const auto wrong = verify(schedules, grid, spec);
  ASSERT_TRUE(wrong);
  EXPECT_THAT(*wrong, HasSubstr("device memory to the network"));
}

}  // namespace
}  // namespace kolo
