// Tests every collective that moves or sums parts, on any grid and for any interleaving.

#include <gmock/gmock.h>

#include <limits>

#include "tests/runtime/calls/collective_calls.h"
#include "tests/support/engine_job.h"
#include "tests/support/sanitized.h"

namespace kolo {
namespace {

using test::EngineJob;
using test::error_of;

class Collectives : public testing::TestWithParam<std::tuple<test::CollectiveCall, MemoryKind>> {
 protected:
  const test::CollectiveCall& call() const { return std::get<0>(GetParam()); }
  std::optional<test::JobDevices> devices() const {
    return test::devices_for(std::get<MemoryKind>(GetParam()));
  }

  /// Runs two uses of one name with different buffers, and checks the results.
  void expect_result(EngineJob& job, const std::vector<std::size_t>& counts, int root,
                     bool in_place, const std::string& name) {
    const CollectiveSpec spec = call().spec(counts, root);
    for (int use = 0; use < 2; ++use) {
      std::vector<test::CollectiveBuffers> buffers;
      std::vector<std::shared_ptr<Operation>> operations;
      for (int rank = 0; rank < job.world_size(); ++rank) {
        buffers.push_back(test::buffers_for(spec, rank, in_place));
      }
      for (int rank = 0; rank < job.world_size(); ++rank) {
        OperationPool pool;
        auto& mine = buffers[static_cast<std::size_t>(rank)];
        operations.push_back(
            job.submit(rank, *call().make(OperationCalls(pool, rank, job.world_size()), name, mine,
                                          counts, root, in_place)));
      }
      job.finish(operations);
      for (int rank = 0; rank < job.world_size(); ++rank) {
        const auto& mine = buffers[static_cast<std::size_t>(rank)];
        ASSERT_EQ(error_of(*operations[static_cast<std::size_t>(rank)]), "") << name;
        ASSERT_EQ(mine.result, mine.expected) << name << " rank " << rank << " use " << use;
      }
    }
  }
};

TEST_P(Collectives, GiveTheSameForAnyInterleaving) {
  std::vector<std::vector<int>> shapes = {{1}, {3}, {1, 1}, {3, 1, 2}};
  if (!test::kSanitized) shapes.insert(shapes.end(), {{2}, {2, 2}, {1, 2, 1, 1}});
  const std::vector<std::string> algorithms = {"auto", "direct", "ring", "pairwise",
                                               "scatter_allgather"};
  for (std::uint64_t seed = 0; seed < algorithms.size(); ++seed) {
    for (const std::vector<int>& nodes : shapes) {
      EngineJob job(ProcessGrid::with_node_sizes(nodes),
                    {.algorithm = algorithms[seed], .verify_schedules = true}, seed, devices());
      const auto ranks = static_cast<std::size_t>(job.world_size());
      for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{331}}) {
        std::vector<std::size_t> counts(ranks, count);
        const int root = static_cast<int>(seed % ranks);
        for (const bool is_uneven : {false, true}) {
          if (is_uneven && !call().takes_counts) continue;
          if (is_uneven) counts[ranks - 1] += 3;
          for (const bool in_place : {false, true}) {
            expect_result(job, counts, root, in_place,
                          call().name + std::to_string(count) + (is_uneven ? "v" : "") +
                              (in_place ? " in place" : ""));
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST_P(Collectives, MoveMoreThanTheirSlotsHold) {
  struct Shape {
    std::vector<int> nodes;
    const char* algorithm;
    bool in_place;
  };
  for (const auto& [nodes, algorithm, in_place] :
       {Shape{{2}, "direct", true}, Shape{{3}, "direct", false}, Shape{{2, 1}, "direct", true},
        Shape{{2, 1}, "ring", false}, Shape{{2, 1}, "pairwise", true}}) {
    // On one node, stores bypass the cache.
    const bool is_node = nodes.size() == 1;
    if (!is_node && devices()) continue;  // through host memory, as above
    const char* const costs = is_node ? "memory_streamed_bytes_per_us=1e6" : "";
    EngineJob job(ProcessGrid::with_node_sizes(nodes),
                  {.algorithm = algorithm, .link_costs = costs, .verify_schedules = is_node}, 5,
                  devices());
    expect_result(job,
                  std::vector<std::size_t>(static_cast<std::size_t>(job.world_size()), 300'001), 0,
                  in_place, "large");
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Collectives,
                         testing::Combine(testing::ValuesIn(test::collective_calls()),
                                          testing::Values(MemoryKind::kHost, MemoryKind::kDevice)),
                         [](const auto& each) {
                           return std::get<0>(each.param).name + "_" +
                                  std::string(to_string(std::get<MemoryKind>(each.param)));
                         });

TEST(CollectiveCalls, SendEachRankAsMuchAsTheCountsSay) {
  const std::vector<std::size_t> counts{0, 5, 300, 7, 0, 1, 2, 64, 3};
  const CollectiveSpec spec = CollectiveSpec::all_to_all(3, counts);
  for (const MemoryKind memory : {MemoryKind::kHost, MemoryKind::kDevice}) {
    EngineJob job(ProcessGrid::with_node_sizes({2, 1}), {.verify_schedules = true}, 9,
                  test::devices_for(memory));
    std::vector<test::CollectiveBuffers> buffers;
    for (int rank = 0; rank < 3; ++rank) buffers.push_back(test::buffers_for(spec, rank, false));
    std::vector<std::shared_ptr<Operation>> operations;
    for (int rank = 0; rank < 3; ++rank) {
      OperationPool pool;
      auto& mine = buffers[static_cast<std::size_t>(rank)];
      operations.push_back(job.submit(
          rank, *OperationCalls(pool, rank, 3)
                     .make(OperationKind::kAllToAll, "x", {mine.input, mine.result, counts})));
    }
    job.finish(operations);
    for (const test::CollectiveBuffers& mine : buffers) EXPECT_EQ(mine.result, mine.expected);
  }
}

// The root is in place in one use and not in the next. The other ranks are not told.
TEST(CollectiveCalls, AreInPlaceWhereTheRootSaysSo) {
  const std::vector<std::size_t> counts{3, 40, 7};
  for (const MemoryKind memory : {MemoryKind::kHost, MemoryKind::kDevice}) {
    for (const char* const algorithm : {"auto", "direct", "pairwise"}) {
      EngineJob job(ProcessGrid::with_node_sizes({2, 1}),
                    {.algorithm = algorithm, .verify_schedules = true}, 12,
                    test::devices_for(memory));
      for (const test::CollectiveCall& call : test::collective_calls()) {
        if (call.name != "gather" && call.name != "scatter") continue;
        const CollectiveSpec spec = call.spec(counts, 1);
        std::string signature;
        for (const bool in_place : {false, true, true, false}) {
          std::vector<test::CollectiveBuffers> buffers;
          std::vector<std::shared_ptr<Operation>> operations;
          for (int rank = 0; rank < 3; ++rank) {
            buffers.push_back(test::buffers_for(spec, rank, in_place));
          }
          const std::vector<float> input = buffers[1].input;
          for (int rank = 0; rank < 3; ++rank) {
            OperationPool pool;
            operations.push_back(job.submit(
                rank, *call.make(OperationCalls(pool, rank, 3), call.name,
                                 buffers[static_cast<std::size_t>(rank)], counts, 1, in_place)));
          }
          if (signature.empty()) signature = operations[0]->signature();
          EXPECT_EQ(operations[1]->signature(), signature);
          job.finish(operations);
          for (const auto& operation : operations) ASSERT_EQ(error_of(*operation), "");
          for (const auto& mine : buffers) EXPECT_EQ(mine.result, mine.expected) << call.name;
          EXPECT_EQ(buffers[1].input, input) << call.name;
        }
      }
    }
  }
}

const float kReadOnly[] = {1, 2, 3, 4, 5, 6};

// Writing to the input would end the process.
TEST(CollectiveCalls, InPlaceLeaveTheInputOfAScatterAlone) {
  for (const char* const algorithm : {"direct", "pairwise"}) {
    EngineJob job(ProcessGrid::with_node_sizes({2, 1}),
                  {.algorithm = algorithm, .verify_schedules = true}, 13);
    std::vector<float> first(2), second(2);
    std::vector<std::shared_ptr<Operation>> operations;
    for (int rank = 0; rank < 3; ++rank) {
      OperationPool pool;
      const Tensor tensor = rank == 0   ? Tensor(first)
                            : rank == 1 ? Tensor(ConstBuffer(kReadOnly), {})
                                        : Tensor(ConstBuffer(), second);
      operations.push_back(job.submit(
          rank, *OperationCalls(pool, rank, 3).make(OperationKind::kScatter, "x", tensor, 1)));
    }
    job.finish(operations);
    EXPECT_THAT(first, testing::ElementsAre(1, 2));
    EXPECT_THAT(second, testing::ElementsAre(5, 6));
  }
}

TEST(CollectiveCalls, RefuseCountsWhoseSumWraps) {
  OperationPool pool;
  const OperationCalls calls(pool, 1, 3);
  std::vector<float> in(2), out(2);
  constexpr std::size_t kMinusOne = std::numeric_limits<std::size_t>::max();
  const std::vector<std::size_t> counts{kMinusOne, 2, 1};
  const std::vector<std::size_t> pairs{0, 0, 0, kMinusOne, 2, 1, 0, 0, 0};
  EXPECT_THROW(calls.make(OperationKind::kAllGather, "x", {in, out, counts}, 0), UsageError);
  EXPECT_THROW(calls.make(OperationKind::kAllToAll, "x", {in, out, pairs}, 0), UsageError);
}

TEST(CollectiveCalls, RefuseWhatCannotBeMeant) {
  using Kind = OperationKind;
  OperationPool pool;
  const OperationCalls calls(pool, 1, 3);
  std::vector<float> in(30), out(30);
  std::vector<double> wide(30);
  const std::vector<std::size_t> counts{1, 2, 3}, short_counts{1, 2};
  const std::vector<std::size_t> pairs{0, 1, 2, 3, 4, 5, 6, 7, 8};
  const auto refused = [&](Kind kind, const Tensors& tensors, int root = 0) -> std::string {
    try {
      calls.make(kind, "x", tensors, root);
    } catch (const UsageError& e) {
      return e.what();
    }
    return "taken";
  };
  const auto part = [](std::vector<float>& data, std::size_t count) {
    return BufferView(data.data(), count);
  };
  const auto has = [](const char* text) { return testing::HasSubstr(text); };
  // These calls have wrong sizes, given by counts or by the other buffer.
  EXPECT_THAT(refused(Kind::kReduce, {in, out}, 3), has("'x': the root 3 is not a rank"));
  EXPECT_THAT(refused(Kind::kAllGather, {in, out, short_counts}), has("2 counts for 3 ranks"));
  EXPECT_THAT(refused(Kind::kAllGather, {part(in, 2), out, counts}),
              has("the result has 30 elements where the counts say 6"));
  EXPECT_THAT(refused(Kind::kReduceScatter, {part(in, 6), part(out, 3), counts}),
              has("the result has 3 elements where the counts say 2"));
  EXPECT_THAT(refused(Kind::kReduceScatter, {part(in, 8), part(out, 3)}),
              has("the input has 8 elements where the other buffer says 9"));
  EXPECT_THAT(refused(Kind::kAllReduce, {part(in, 8), part(out, 9)}),
              has("the input has 8 elements where the other buffer says 9"));
  EXPECT_THAT(refused(Kind::kAllReduce, {{}, out}),
              has("the input has 0 elements where the other buffer says 30"));
  EXPECT_THAT(refused(Kind::kAllGather, {part(in, 9), out}),
              has("the result has 30 elements where the other buffer says 27"));
  EXPECT_THAT(refused(Kind::kAllGather, {out, counts}),
              has("the result has 30 elements where the counts say 6"));
  EXPECT_THAT(refused(Kind::kAllToAll, part(out, 10)),
              has("10 elements are not as many for each of 3 ranks"));
  EXPECT_THAT(refused(Kind::kAllToAll, {in, out, counts}), has("3 counts for 9 pairs of ranks"));
  EXPECT_THAT(refused(Kind::kAllToAll, {part(in, 12), out, pairs}),
              has("the result has 30 elements where the counts say 12"));
  EXPECT_THAT(refused(Kind::kAllToAll, {part(out, 12), pairs}),
              has("ranks 0 and 1 exchange as many elements both ways, not 1 and 3"));
  EXPECT_THAT(refused(Kind::kAllReduce, {in, out, counts}),
              has("knows no parts, so it takes no counts"));
  // These calls have wrong memory.
  EXPECT_THAT(refused(Kind::kAllToAll, {out, out}), has("overlap; pass one buffer"));
  EXPECT_THAT(refused(Kind::kGather, {part(in, 10), in}, 1), has("overlap; pass one buffer"));
  EXPECT_THAT(refused(Kind::kScatter, {in, part(in, 10)}, 1), has("overlap; pass one buffer"));
  EXPECT_THAT(refused(Kind::kBroadcast, {out, out}, 1), has("overlap; pass one buffer"));
  EXPECT_THAT(refused(Kind::kAllReduce, BufferView(static_cast<float*>(nullptr), 3)),
              has("the result is null"));
  EXPECT_THAT(refused(Kind::kAllGather, BufferView(out.data(), 30, MemoryKind::kPinned)),
              has("pinned memory is host memory"));
  EXPECT_THAT(refused(Kind::kAllReduce, {in, wide}),
              has("buffers of float32 in host memory and of float64 in host memory"));
  EXPECT_THAT(refused(Kind::kAllReduce, {in, BufferView(out.data(), 30, MemoryKind::kDevice)}),
              has("of float32 in host memory and of float32 in device memory"));
  // Buffers that a rank does not use may be null.
  EXPECT_EQ(refused(Kind::kGather, out, 1), "taken");
  EXPECT_EQ(refused(Kind::kGather, {{}, out}, 1), "taken");
  EXPECT_EQ(refused(Kind::kGather, {in, {}}, 0), "taken");
  EXPECT_EQ(refused(Kind::kScatter, in, 1), "taken");
  EXPECT_EQ(refused(Kind::kScatter, {in, {}}, 1), "taken");
  EXPECT_EQ(refused(Kind::kScatter, {{}, out}, 0), "taken");
  EXPECT_EQ(refused(Kind::kBroadcast, {{}, out}, 0), "taken");
  EXPECT_EQ(refused(Kind::kReduce, {in, {}}, 0), "taken");
  EXPECT_THAT(refused(Kind::kReduce, {in, {}}, 1), has("the input has 30 elements"));
  EXPECT_THAT(refused(Kind::kBroadcast, {{}, out}, 1), has("the input has 0 elements"));
}

}  // namespace
}  // namespace kolo
