#include "runtime/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <numeric>
#include <random>
#include <thread>

#include "comm/base/half.h"
#include "tests/support/engine_job.h"

namespace kolo {
namespace {

using test::EngineJob;
using testing::AllOf;
using testing::HasSubstr;

BufferView view(std::vector<float>& data) { return {data.data(), data.size(), DType::kFloat32}; }

/// The error of a finished ticket, or an empty string.
std::string error_of(const Operation& operation) {
  try {
    operation.ticket->wait(std::chrono::milliseconds(1));
    return {};
  } catch (const KoloError& e) {
    return e.what();
  }
}

/// Small integers, so that sums are exact in any order.
float element(int rank, std::size_t index) {
  return static_cast<float>((rank + 1) * (static_cast<int>(index % 11) + 1));
}

struct Shape {
  std::vector<int> nodes;
  std::string algorithm;
};

class EngineShapes : public testing::TestWithParam<Shape> {};

TEST_P(EngineShapes, AllReduceSumsForAnyInterleaving) {
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    EngineJob job(ProcessGrid::with_node_sizes(GetParam().nodes),
                  {.algorithm = GetParam().algorithm, .chunk_bytes = 256}, seed);
    for (const std::size_t count : std::initializer_list<std::size_t>{0, 1, 3, 64, 331}) {
      std::vector<std::vector<float>> data(static_cast<std::size_t>(job.world_size()));
      // Twice: the second use takes the plan of the first.
      for (int use = 0; use < 2; ++use) {
        std::vector<std::shared_ptr<Operation>> operations;
        for (int rank = 0; rank < job.world_size(); ++rank) {
          auto& mine = data[static_cast<std::size_t>(rank)];
          mine.resize(count);
          for (std::size_t i = 0; i < count; ++i) mine[i] = element(rank, i);
          operations.push_back(job.submit(rank, {.kind = OperationKind::kAllReduce,
                                                 .name = "x" + std::to_string(count),
                                                 .buffer = view(mine)}));
        }
        job.finish(operations);
        for (int rank = 0; rank < job.world_size(); ++rank) {
          EXPECT_EQ(error_of(*operations[static_cast<std::size_t>(rank)]), "");
          for (std::size_t i = 0; i < count; ++i) {
            float sum = 0;
            for (int other = 0; other < job.world_size(); ++other) sum += element(other, i);
            ASSERT_EQ(data[static_cast<std::size_t>(rank)][i], sum)
                << "seed " << seed << " rank " << rank << " element " << i;
          }
        }
      }
    }
  }
}

TEST_P(EngineShapes, BroadcastReachesAll) {
  EngineJob job(ProcessGrid::with_node_sizes(GetParam().nodes),
                {.algorithm = GetParam().algorithm, .chunk_bytes = 256}, 7);
  for (int root = 0; root < job.world_size(); ++root) {
    std::vector<std::vector<float>> data(static_cast<std::size_t>(job.world_size()),
                                         std::vector<float>(200));
    std::vector<std::shared_ptr<Operation>> operations;
    for (int rank = 0; rank < job.world_size(); ++rank) {
      auto& mine = data[static_cast<std::size_t>(rank)];
      std::fill(mine.begin(), mine.end(), static_cast<float>(rank));
      operations.push_back(job.submit(rank, {.kind = OperationKind::kBroadcast,
                                             .name = "weights " + std::to_string(root),
                                             .buffer = view(mine),
                                             .root = root}));
    }
    job.finish(operations);
    for (const auto& mine : data) EXPECT_THAT(mine, testing::Each(static_cast<float>(root)));
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, EngineShapes,
                         testing::Values(Shape{{1}, "auto"}, Shape{{2}, "auto"},
                                         Shape{{4}, "direct"}, Shape{{3}, "ring"},
                                         Shape{{1, 1}, "auto"}, Shape{{1, 1, 1}, "tree"},
                                         Shape{{2, 2}, "auto"},
                                         Shape{{2, 2}, "hierarchical:direct,direct"},
                                         Shape{{3, 1, 2}, "hierarchical:direct,ring"},
                                         Shape{{2, 2, 2, 2}, "halving_doubling"},
                                         Shape{std::vector<int>(11, 1), "ring"}));

class GradientSets : public testing::TestWithParam<std::vector<int>> {};

// Marks gradients in a different order on every rank, in arena and user memory, for several fusion
// limits, and compares with sums that are exact.
TEST_P(GradientSets, AverageInAnyOrderOfReadiness) {
  for (const std::size_t fusion_bytes : std::initializer_list<std::size_t>{0, 300, 1U << 16}) {
    for (bool in_arena : {true, false}) {
      const std::uint64_t seed = fusion_bytes + in_arena;
      EngineJob job(ProcessGrid::with_node_sizes(GetParam()),
                    {.fusion_bytes = fusion_bytes, .chunk_bytes = 512}, seed);
      const std::size_t world = static_cast<std::size_t>(job.world_size());
      const std::vector<std::size_t> counts = {5, 64, 1, 100, 33, 17};
      std::vector<std::vector<std::vector<float>>> memory(world);
      std::vector<std::shared_ptr<GradientGroup>> groups;
      for (int rank = 0; rank < job.world_size(); ++rank) {
        std::vector<GradientSpec> specs;
        for (std::size_t count : counts) {
          memory[static_cast<std::size_t>(rank)].emplace_back(count);
          specs.push_back({.name = "g" + std::to_string(specs.size()), .shape = {count}});
          if (!in_arena) specs.back().data = memory[static_cast<std::size_t>(rank)].back().data();
        }
        groups.push_back(std::make_shared<GradientGroup>("model", specs, GradientOptions{}));
        job.engine(rank).submit(groups.back());
      }
      job.run_until([&] {
        return std::all_of(groups.begin(), groups.end(),
                           [](const auto& group) { return group->registration().done(); });
      });
      for (const auto& group : groups) EXPECT_EQ(group->summary().hash, groups[0]->summary().hash);

      std::mt19937_64 random(seed);
      for (int iteration = 0; iteration < 3; ++iteration) {
        for (int rank = 0; rank < job.world_size(); ++rank) {
          GradientGroup& group = *groups[static_cast<std::size_t>(rank)];
          std::vector<std::size_t> order(counts.size());
          std::iota(order.begin(), order.end(), std::size_t{0});
          std::shuffle(order.begin(), order.end(), random);
          for (std::size_t g : order) {
            auto* values = static_cast<float*>(group.view(g).data);
            for (std::size_t i = 0; i < counts[g]; ++i) {
              values[i] = element(rank, i + g) * static_cast<float>(world) *
                          static_cast<float>(iteration + 1);
            }
            group.note_ready(g);
            job.engine(rank).mark(group, g);
          }
        }
        job.run_until([&] {
          for (int rank = 0; rank < job.world_size(); ++rank) {
            if (!job.engine(rank).idle()) return false;
          }
          return true;
        });
        for (const auto& group : groups) {
          ASSERT_TRUE(group->wait(std::chrono::milliseconds(1)));
          for (std::size_t g = 0; g < counts.size(); ++g) {
            const auto* values = static_cast<const float*>(group->view(g).data);
            for (std::size_t i = 0; i < counts[g]; ++i) {
              float sum = 0;
              for (int other = 0; other < job.world_size(); ++other) sum += element(other, i + g);
              ASSERT_EQ(values[i], sum * static_cast<float>(iteration + 1))
                  << "seed " << seed << " gradient " << g;
            }
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, GradientSets,
                         testing::Values(std::vector<int>{1}, std::vector<int>{2},
                                         std::vector<int>{4}, std::vector<int>{1, 1},
                                         std::vector<int>{2, 2}, std::vector<int>{2, 1, 1}));

// Same plan, same inputs: same bits for every interleaving, and with `direct` for every fusion
// limit.
TEST(Engine, BitsDoNotDependOnTimingOrFusion) {
  std::vector<float> reference;
  for (const std::size_t fusion_bytes : std::initializer_list<std::size_t>{
           std::size_t{0}, std::size_t{1000}, std::size_t{1} << 16}) {
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
      EngineJob job(ProcessGrid::with_node_sizes({2, 1}),
                    {.fusion_bytes = fusion_bytes, .algorithm = "direct"}, seed);
      std::vector<std::shared_ptr<GradientGroup>> groups;
      for (int rank = 0; rank < 3; ++rank) {
        std::vector<GradientSpec> specs;
        for (const std::size_t count : std::initializer_list<std::size_t>{100, 30, 77})
          specs.push_back({.name = "g" + std::to_string(specs.size()), .shape = {count}});
        groups.push_back(std::make_shared<GradientGroup>("model", specs, GradientOptions{}));
        job.engine(rank).submit(groups.back());
      }
      job.run_until([&] {
        return groups[0]->registration().done() && groups[1]->registration().done() &&
               groups[2]->registration().done();
      });
      for (int rank = 0; rank < 3; ++rank) {
        std::mt19937 values(static_cast<unsigned>(rank));
        for (std::size_t g = 0; g < 3; ++g) {
          const BufferView gradient = groups[static_cast<std::size_t>(rank)]->view(g);
          for (std::size_t i = 0; i < gradient.count; ++i) {
            static_cast<float*>(gradient.data)[i] =
                std::uniform_real_distribution<float>(-1, 1)(values);
          }
          groups[static_cast<std::size_t>(rank)]->note_ready(g);
          job.engine(rank).mark(*groups[static_cast<std::size_t>(rank)], g);
        }
      }
      job.run_until(
          [&] { return job.engine(0).idle() && job.engine(1).idle() && job.engine(2).idle(); });
      for (const auto& group : groups) {
        ASSERT_TRUE(group->wait(std::chrono::milliseconds(1)));
        std::vector<float> result;
        for (std::size_t g = 0; g < 3; ++g) {
          const auto* values = static_cast<const float*>(group->view(g).data);
          result.insert(result.end(), values, values + group->view(g).count);
        }
        if (reference.empty()) reference = result;
        ASSERT_EQ(std::memcmp(result.data(), reference.data(), result.size() * sizeof(float)), 0)
            << "seed " << seed << " fusion " << fusion_bytes;
      }
    }
  }
}

// Each input rounded once, summed in fp32 in rank order, scaled, rounded once.
TEST(Engine, SixteenBitWireRoundsOnce) {
  EngineJob job(ProcessGrid::with_node_sizes({2, 1}), {.algorithm = "direct"}, 3);
  constexpr std::size_t kCount = 257;
  std::vector<std::shared_ptr<GradientGroup>> groups;
  for (int rank = 0; rank < 3; ++rank) {
    groups.push_back(std::make_shared<GradientGroup>(
        "model", std::vector<GradientSpec>{{.name = "g", .shape = {kCount}}},
        GradientOptions{.wire_dtype = DType::kBFloat16}));
    job.engine(rank).submit(groups.back());
  }
  job.run_until([&] {
    return groups[0]->registration().done() && groups[1]->registration().done() &&
           groups[2]->registration().done();
  });
  std::vector<std::vector<float>> input(3, std::vector<float>(kCount));
  for (int rank = 0; rank < 3; ++rank) {
    std::mt19937 values(static_cast<unsigned>(rank));
    auto& mine = input[static_cast<std::size_t>(rank)];
    for (float& value : mine) value = std::uniform_real_distribution<float>(-10, 10)(values);
    std::copy(mine.begin(), mine.end(),
              static_cast<float*>(groups[static_cast<std::size_t>(rank)]->view(0).data));
    groups[static_cast<std::size_t>(rank)]->note_ready(0);
    job.engine(rank).mark(*groups[static_cast<std::size_t>(rank)], 0);
  }
  job.run_until(
      [&] { return job.engine(0).idle() && job.engine(1).idle() && job.engine(2).idle(); });
  const auto rounded = [](float value) { return to_float(to_bfloat16(value)); };
  for (std::size_t i = 0; i < kCount; ++i) {
    const float sum = rounded(input[0][i]) + rounded(input[1][i]) + rounded(input[2][i]);
    const float expected = rounded(sum * static_cast<float>(1.0 / 3));
    for (const auto& group : groups)
      ASSERT_EQ(static_cast<const float*>(group->view(0).data)[i], expected) << i;
  }
}

// --- Disagreement -------------------------------------------------------------------------------

constexpr Duration kTick = std::chrono::milliseconds(10);

class Disagreements : public testing::TestWithParam<std::vector<int>> {
 protected:
  /// Submits one operation per rank whose threads block on it, runs to the end, and returns the one
  /// error that all ranks must have.
  std::string common_error(EngineJob& job, std::vector<Operation> operations) {
    std::vector<std::shared_ptr<Operation>> submitted;
    std::vector<std::thread> waiting;
    for (int rank = 0; rank < job.world_size(); ++rank) {
      submitted.push_back(job.submit(rank, std::move(operations[static_cast<std::size_t>(rank)])));
      waiting.emplace_back([ticket = submitted.back()->ticket] {
        try {
          ticket->wait(std::chrono::milliseconds(0));
        } catch (const KoloError&) {
        }
      });
    }
    for (const auto& operation : submitted) {
      while (operation->ticket->waiters() == 0 && !operation->ticket->done())
        std::this_thread::yield();
    }
    job.finish(submitted, kTick);
    for (std::thread& thread : waiting) thread.join();
    for (const auto& operation : submitted)
      EXPECT_EQ(error_of(*operation), error_of(*submitted[0]));
    return error_of(*submitted[0]);
  }

  void expect_next_works(EngineJob& job) {
    std::vector<std::vector<float>> data(static_cast<std::size_t>(job.world_size()),
                                         std::vector<float>(10, 1.0F));
    std::vector<std::shared_ptr<Operation>> operations;
    for (int rank = 0; rank < job.world_size(); ++rank) {
      operations.push_back(
          job.submit(rank, {.kind = OperationKind::kAllReduce,
                            .name = "x",
                            .buffer = view(data[static_cast<std::size_t>(rank)])}));
    }
    job.finish(operations);
    for (const auto& operation : operations) EXPECT_EQ(error_of(*operation), "");
    for (const auto& mine : data)
      EXPECT_THAT(mine, testing::Each(static_cast<float>(job.world_size())));
  }

  std::vector<Operation> same(EngineJob& job, std::vector<float>& buffer) {
    return std::vector<Operation>(
        static_cast<std::size_t>(job.world_size()),
        {.kind = OperationKind::kAllReduce, .name = "x", .buffer = view(buffer)});
  }

  void fresh_tickets(std::vector<Operation>& operations) {
    for (Operation& operation : operations) operation.ticket = std::make_shared<TicketState>();
  }
};

TEST_P(Disagreements, OnShapeTypeOrOperationNameRankTensorAndBothValues) {
  std::vector<float> buffer(64);
  struct Change {
    std::function<void(Operation&)> apply;
    std::string expected, other;
  };
  const Change changes[] = {
      {[](Operation& o) { o.buffer.count = 20; }, "float32 [20] sum", "float32 [64] sum"},
      {[](Operation& o) { o.buffer.dtype = DType::kInt32; }, "int32 [64] sum", "float32 [64] sum"},
      {[](Operation& o) { o.op = ReduceOp::kMax; }, "float32 [64] max", "float32 [64] sum"},
      {[](Operation& o) { o.kind = OperationKind::kBroadcast; }, "broadcast float32",
       "all_reduce float32"},
  };
  for (const Change& change : changes) {
    EngineJob job(ProcessGrid::with_node_sizes(GetParam()), {}, 11);
    auto operations = same(job, buffer);
    fresh_tickets(operations);
    change.apply(operations[1]);
    EXPECT_THAT(common_error(job, operations),
                AllOf(HasSubstr("rank 1 submits 'x'"), HasSubstr(change.expected),
                      HasSubstr(change.other), HasSubstr("rank")));
    expect_next_works(job);
  }
}

TEST_P(Disagreements, OnNamesAreFoundAmongRanksThatWaitForEachOther) {
  std::vector<float> buffer(64);
  EngineJob job(ProcessGrid::with_node_sizes(GetParam()), {}, 12);
  auto operations = same(job, buffer);
  fresh_tickets(operations);
  operations[1].name = "y";
  EXPECT_THAT(common_error(job, operations),
              AllOf(HasSubstr("rank 1 waits for 'y'"), HasSubstr("'x'")));
  expect_next_works(job);
}

TEST_P(Disagreements, OnALaterShapeAreFoundToo) {
  std::vector<float> buffer(64);
  EngineJob job(ProcessGrid::with_node_sizes(GetParam()), {}, 13);
  expect_next_works(job);  // plans 'x' with 10 elements
  auto operations = same(job, buffer);
  fresh_tickets(operations);
  for (Operation& operation : operations) operation.buffer.count = 10;
  operations[1].buffer.count = 20;
  EXPECT_THAT(common_error(job, operations),
              AllOf(HasSubstr("rank 1 waits for 'x'"), HasSubstr("[20]"), HasSubstr("[10]")));
  expect_next_works(job);
}

TEST_P(Disagreements, OneRankEndsWhileOthersWait) {
  std::vector<float> buffer(64);
  EngineJob job(ProcessGrid::with_node_sizes(GetParam()), {}, 14);
  auto operations = same(job, buffer);
  fresh_tickets(operations);
  operations[1] = {.kind = OperationKind::kClose};
  EXPECT_THAT(common_error(job, operations),
              AllOf(HasSubstr("rank 1 waits for the end of the job"), HasSubstr("'x'")));
}

INSTANTIATE_TEST_SUITE_P(Shapes, Disagreements,
                         testing::Values(std::vector<int>{2}, std::vector<int>{3},
                                         std::vector<int>{1, 1}, std::vector<int>{2, 2}));

TEST(Engine, ARankThatOnlyTakesLongIsNotAnError) {
  EngineJob job(ProcessGrid::with_node_sizes({2, 1}), {}, 15);
  std::vector<std::vector<float>> data(3, std::vector<float>(8, 1.0F));
  std::vector<std::shared_ptr<Operation>> operations;
  for (int rank : {0, 2}) {
    operations.push_back(job.submit(rank, {.kind = OperationKind::kAllReduce,
                                           .name = "x",
                                           .buffer = view(data[static_cast<std::size_t>(rank)])}));
  }
  const TimePoint start = job.clock().now();
  job.run_until([&] { return job.clock().now() - start > std::chrono::minutes(2); },
                std::chrono::milliseconds(50));
  EXPECT_FALSE(operations[0]->ticket->done());
  operations.push_back(
      job.submit(1, {.kind = OperationKind::kAllReduce, .name = "x", .buffer = view(data[1])}));
  job.finish(operations);
  for (const auto& operation : operations) EXPECT_EQ(error_of(*operation), "");
}

TEST(Engine, AFrozenRankIsLostEverywhereAfterThePeerTimeout) {
  for (const std::vector<int>& nodes : {std::vector<int>{3}, {1, 1, 1}, {2, 1}}) {
    for (int frozen = 0; frozen < 3; ++frozen) {
      InProcessHub hub(ProcessGrid::with_node_sizes(nodes), EngineJob::kLimits);
      ManualClock clock;
      std::vector<std::unique_ptr<Transport>> transports;
      std::vector<std::unique_ptr<Engine>> engines;
      for (int rank = 0; rank < 3; ++rank) {
        transports.push_back(hub.transport(rank));
        engines.push_back(std::make_unique<Engine>(*transports.back(), hub.grid(), clock, Options{},
                                                   EngineJob::kLimits));
      }
      std::vector<float> buffer(8);
      std::vector<std::shared_ptr<Operation>> operations;
      for (int rank = 0; rank < 3; ++rank) {
        operations.push_back(std::make_shared<Operation>(
            Operation{.kind = OperationKind::kAllReduce, .name = "x", .buffer = view(buffer)}));
        if (rank != frozen) engines[static_cast<std::size_t>(rank)]->submit(operations.back());
      }
      for (int step = 0; step < 3000; ++step) {
        clock.advance(std::chrono::milliseconds(10));
        for (int rank = 0; rank < 3; ++rank) {
          if (rank != frozen) engines[static_cast<std::size_t>(rank)]->poll();
        }
      }
      std::string first;
      for (int rank = 0; rank < 3; ++rank) {
        if (rank == frozen) continue;
        ASSERT_TRUE(operations[static_cast<std::size_t>(rank)]->ticket->done())
            << "frozen " << frozen;
        const std::string error = error_of(*operations[static_cast<std::size_t>(rank)]);
        EXPECT_THAT(error, HasSubstr("rank " + std::to_string(frozen) + " gives no sign of life"));
        if (first.empty()) first = error;
        EXPECT_EQ(error, first);
      }
    }
  }
}

TEST(Engine, EveryTicketIsAnsweredWhenARankAborts) {
  EngineJob job(ProcessGrid::with_node_sizes({2, 1}), {}, 16);
  std::vector<float> buffer(8);
  std::vector<std::shared_ptr<Operation>> operations;
  for (int i = 0; i < 5; ++i) {
    operations.push_back(job.submit(
        i % 2,
        {.kind = OperationKind::kAllReduce, .name = std::to_string(i), .buffer = view(buffer)}));
  }
  job.engine(2).abort({.code = ErrorCode::kPeerLost, .rank = 2, .peer = 2, .what = "rank 2 left"});
  job.finish(operations, kTick);
  for (const auto& operation : operations)
    EXPECT_THAT(error_of(*operation), HasSubstr("rank 2 left"));
  job.run_until(
      [&] { return job.engine(0).ended() && job.engine(1).ended() && job.engine(2).ended(); },
      kTick);
  const auto late = job.submit(0, {.kind = OperationKind::kBarrier, .name = "late"});
  ASSERT_TRUE(late->ticket->done());
  EXPECT_THAT(error_of(*late), HasSubstr("rank 2 left"));
}

TEST(Engine, ClosesTogether) {
  EngineJob job(ProcessGrid::with_node_sizes({2, 2}), {}, 17);
  std::vector<std::shared_ptr<Operation>> operations;
  for (int rank = 0; rank < 4; ++rank)
    operations.push_back(job.submit(rank, {.kind = OperationKind::kClose}));
  job.finish(operations);
  for (const auto& operation : operations) EXPECT_EQ(error_of(*operation), "");
  const auto late = job.submit(1, {.kind = OperationKind::kBarrier, .name = "late"});
  ASSERT_TRUE(late->ticket->done());
  EXPECT_THAT(error_of(*late), HasSubstr("closed"));
}

TEST(Engine, WhatIsUnderWayWhenAllCloseIsAnswered) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    EngineJob job(ProcessGrid::with_node_sizes({2, 1}), {}, seed);
    std::vector<std::vector<float>> data(3, std::vector<float>(100, 1.0F));
    std::vector<std::shared_ptr<Operation>> operations;
    for (int rank = 0; rank < 3; ++rank) {
      operations.push_back(
          job.submit(rank, {.kind = OperationKind::kAllReduce,
                            .name = "x",
                            .buffer = view(data[static_cast<std::size_t>(rank)])}));
      operations.push_back(job.submit(rank, {.kind = OperationKind::kClose}));
    }
    job.finish(operations);
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(error_of(*operations[static_cast<std::size_t>(2 * rank + 1)]), "")
          << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace kolo
