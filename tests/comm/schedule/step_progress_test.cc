#include "comm/schedule/step_progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace kolo {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

template <typename Queue>
std::vector<StepId> drain(Queue& queue) {
  std::vector<StepId> steps;
  while (!queue.empty()) steps.push_back(queue.pop());
  return steps;
}

Schedule schedule_of(MemoryKind memory, std::vector<Step> steps) {
  Schedule schedule;
  schedule.layout.memory = memory;
  schedule.steps = std::move(steps);
  return schedule;
}

TEST(StepProgress, AStepIsReadyWhenAllThatItWaitsForIsComplete) {
  const Schedule schedule =
      schedule_of(MemoryKind::kHost, {{.kind = StepKind::kRecv},
                                      {.kind = StepKind::kAwait},
                                      {.kind = StepKind::kReduce, .after = {0, 1}},
                                      {.kind = StepKind::kSend, .after = {2}}});
  StepProgress progress(schedule);
  for (int iteration = 0; iteration < 2; ++iteration) {
    progress.begin();
    EXPECT_THAT(drain(progress.messages), ElementsAre(0, 1));
    progress.complete(1);
    EXPECT_TRUE(progress.kernels.empty());
    progress.complete(0);
    EXPECT_THAT(drain(progress.kernels), ElementsAre(2));
    progress.complete(2);
    EXPECT_THAT(drain(progress.messages), ElementsAre(3));
    EXPECT_FALSE(progress.is_complete());
    progress.complete(3);
    EXPECT_TRUE(progress.is_complete());
  }
}

TEST(StepProgress, WhatHandsTensorsOverComesFirst) {
  const Range lent{.region = Region::kLent}, offered{.region = Region::kOffered};
  const Range user{.region = Region::kUser}, slot{.region = Region::kStaging};
  const Schedule schedule = schedule_of(
      MemoryKind::kHost, {{.kind = StepKind::kUnpack, .target = user, .sources = {slot}},
                          {.kind = StepKind::kPack, .target = slot, .sources = {user}},
                          {.kind = StepKind::kPack, .target = lent, .sources = {user}},
                          {.kind = StepKind::kPack, .target = offered, .sources = {user}},
                          {.kind = StepKind::kUnpack, .target = user, .sources = {offered}},
                          {.kind = StepKind::kUnpack, .target = user, .sources = {lent}}});
  StepProgress progress(schedule);
  for (int iteration = 0; iteration < 2; ++iteration) {
    progress.begin();
    EXPECT_THAT(drain(progress.kernels), ElementsAre(2, 4, 0, 1, 3, 5));
  }
}

// It may be half done.
TEST(StepProgress, AKernelInFrontStaysThere) {
  KernelQueue kernels(3);
  kernels.push(0, /*is_handover=*/false);
  kernels.push(1, /*is_handover=*/false);
  EXPECT_EQ(kernels.front(), 0);
  kernels.push(2, /*is_handover=*/true);
  EXPECT_EQ(kernels.front(), 0);
  EXPECT_THAT(drain(kernels), ElementsAre(0, 2, 1));
}

TEST(StepProgress, OnADeviceAStepFollowsWhatIsEnqueued) {
  const Schedule schedule =
      schedule_of(MemoryKind::kDevice, {{.kind = StepKind::kNative},
                                        {.kind = StepKind::kCopy, .after = {0}},
                                        {.kind = StepKind::kSend, .after = {1}}});
  StepProgress progress(schedule);
  progress.begin();
  EXPECT_THAT(drain(progress.launches), ElementsAre(0));
  progress.enqueue(0, /*is_tracked=*/false);
  EXPECT_THAT(drain(progress.launches), ElementsAre(1));
  progress.enqueue(1, /*is_tracked=*/true);
  EXPECT_TRUE(progress.is_enqueued());
  EXPECT_THAT(drain(progress.messages), IsEmpty());
  progress.complete(1);
  EXPECT_THAT(drain(progress.messages), ElementsAre(2));
  progress.complete(2);
  EXPECT_FALSE(progress.is_complete());
  progress.complete_end();
  EXPECT_TRUE(progress.is_complete());
}

}  // namespace
}  // namespace kolo
