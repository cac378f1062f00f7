
#include <gmock/gmock.h>

#include "comm/schedule/step_progress.h"

namespace kolo {
namespace {

Step reduction_of(std::size_t buffers) {
  return {.kind = StepKind::kReduce,
          .sources = std::vector<Range>(buffers),
          .mirrors = std::vector<Range>(buffers - 1)};
}

std::vector<KernelPiece> pieces_of(const KernelPiece& whole, std::size_t element_bytes) {
  std::vector<KernelPiece> pieces;
  append_pieces(whole, element_bytes, pieces);
  return pieces;
}

TEST(KernelPieces, CoverTheWholeOnceInOrder) {
  for (const std::size_t buffers : std::initializer_list<std::size_t>{1, 2, 3, 8, 64, 5000}) {
    const Step step = reduction_of(buffers);
    for (const std::size_t element_bytes : std::initializer_list<std::size_t>{1, 2, 4, 8}) {
      for (const std::size_t count : std::initializer_list<std::size_t>{1, 15, 1'000, 262'147}) {
        SCOPED_TRACE(testing::Message() << buffers << " buffers, " << count << " elements of "
                                        << element_bytes << " bytes");
        const KernelPiece whole{&step, 77, count};
        std::size_t end = whole.first;
        for (const KernelPiece& piece : pieces_of(whole, element_bytes)) {
          ASSERT_EQ(piece.step, &step);
          ASSERT_EQ(piece.first, end);
          ASSERT_GT(piece.count, 0u);
          end += piece.count;
        }
        EXPECT_EQ(end, whole.first + count);
      }
    }
  }
}

TEST(KernelPieces, AreCutAtCacheLines) {
  constexpr std::size_t kLine = 64;
  for (const std::size_t buffers : std::initializer_list<std::size_t>{1, 2, 3, 5, 7, 300, 5000}) {
    const Step step = reduction_of(buffers);
    for (const std::size_t element_bytes : std::initializer_list<std::size_t>{1, 2, 4, 8}) {
      for (const KernelPiece& piece : pieces_of({&step, 0, 1'000'003}, element_bytes)) {
        ASSERT_EQ(piece.first * element_bytes % kLine, 0u) << buffers << " " << element_bytes;
      }
    }
  }
}

TEST(KernelPieces, MoveAboutEquallyMuchWhateverTheKernel) {
  const Step copy{.kind = StepKind::kCopy, .sources = std::vector<Range>(1)};
  for (const Step& step : {copy, reduction_of(2), reduction_of(3), reduction_of(8)}) {
    const KernelPiece whole{&step, 0, std::size_t{1} << 20};
    const std::vector<KernelPiece> pieces = pieces_of(whole, sizeof(float));
    ASSERT_GT(pieces.size(), 1u);
    for (std::size_t i = 0; i + 1 < pieces.size(); ++i) {
      const std::size_t moved = moved_bytes(pieces[i], sizeof(float));
      EXPECT_LE(moved, kPieceBytes);
      EXPECT_GT(moved, kPieceBytes / 2);
    }
    EXPECT_LE(pieces.size(), moved_bytes(whole, sizeof(float)) / (kPieceBytes / 2) + 1);
  }
}

TEST(KernelPieces, CountWhatIsReadAndWritten) {
  const Step step = reduction_of(3);
  EXPECT_EQ(moved_bytes({&step, 5, 10}, 4), 6u * 10 * 4);
  EXPECT_TRUE(pieces_of({&step, 5, 0}, 4).empty());
}

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
  const Range exposed_input{.region = Region::kExposedInput},
      exposed_result{.region = Region::kExposedResult};
  const Range user{.region = Region::kUser}, slot{.region = Region::kStaging};
  const Schedule schedule = schedule_of(
      MemoryKind::kHost, {{.kind = StepKind::kUnpack, .target = user, .sources = {slot}},
                          {.kind = StepKind::kPack, .target = slot, .sources = {user}},
                          {.kind = StepKind::kPack, .target = exposed_input, .sources = {user}},
                          {.kind = StepKind::kPack, .target = exposed_result, .sources = {user}},
                          {.kind = StepKind::kUnpack, .target = user, .sources = {exposed_result}},
                          {.kind = StepKind::kUnpack, .target = user, .sources = {exposed_input}}});
  StepProgress progress(schedule);
  for (int iteration = 0; iteration < 2; ++iteration) {
    progress.begin();
    EXPECT_THAT(drain(progress.kernels), ElementsAre(2, 4, 0, 1, 3, 5));
  }
}

// The kernel in front may be half complete.
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
