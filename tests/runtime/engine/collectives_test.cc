// Every collective that moves or sums parts, on any grid and for any interleaving.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/goals/goal_registry.h"
#include "runtime/engine/operation_calls.h"
#include "tests/support/engine_job.h"
#include "tests/support/sanitized.h"

namespace kolo {
namespace {

using test::EngineJob;
using test::error_of;
using test::view;

/// The contribution of a rank to an element of a part is a factor of the rank times this: small
/// integers, so that sums are exact in any order.
std::vector<float> pattern(const Extent& elements, int factor) {
  std::vector<float> values(elements.count);
  int step = static_cast<int>(elements.offset % 11);
  for (float& value : values) {
    value = static_cast<float>(factor * (step + 1));
    step = step == 10 ? 0 : step + 1;
  }
  return values;
}

/// The buffers of one rank for a goal: part by part.
struct Buffers {
  std::vector<float> input, result, expected;
};

Buffers buffers_for(const Goal& goal, int rank, bool in_place) {
  Buffers buffers;
  const auto append = [](std::vector<float>& to, const std::vector<float>& values) {
    to.insert(to.end(), values.begin(), values.end());
  };
  for (const Goal::Part& part : goal.parts) {
    const bool gives = part.contributes(rank);
    const bool gets = part.receives(rank);
    if (!gives && !gets) continue;
    const std::vector<float> own = pattern(part.extent, rank + 1);
    int factors = 0;
    for (int each : part.contributors) factors += each + 1;
    if (gives && !in_place) append(buffers.input, own);
    if (gets || in_place) {
      append(buffers.result, gives && in_place ? own : std::vector<float>(own.size(), -1));
      append(buffers.expected, gets ? pattern(part.extent, factors) : own);
    }
  }
  return buffers;
}

/// The call of one collective by one rank.
struct Call {
  std::string name;
  bool takes_counts = true;
  bool takes_null_input = false;
  std::function<std::shared_ptr<Operation>(const OperationCalls& calls, const std::string& name,
                                           Buffers& buffers, const std::vector<std::size_t>& counts,
                                           int root, bool in_place)>
      make;
  std::function<Goal(const std::vector<std::size_t>& counts, int root)> goal;
};

const float* input_of(const Buffers& buffers, bool in_place) {
  static constexpr float kNothing = 0;
  if (in_place) return nullptr;
  return buffers.input.empty() ? &kNothing : buffers.input.data();
}

std::vector<Call> calls() {
  const auto total = [](const std::vector<std::size_t>& counts) {
    std::size_t sum = 0;
    for (const std::size_t count : counts) sum += count;
    return sum;
  };
  return {
      {.name = "reduce",
       .takes_null_input = true,
       .make =
           [=](const auto& calls, const auto& name, auto& b, const auto& counts, int root,
               bool in_place) {
             BufferView result = view(b.result);
             result.count = total(counts);
             return calls.reduce(name, input_of(b, in_place), result, root, ReduceOp::kSum);
           },
       .goal =
           [=](const auto& counts, int root) {
             return Goal::reduce(root, static_cast<int>(counts.size()), total(counts));
           }},
      {.name = "reduce_scatter",
       .takes_null_input = true,
       .make =
           [](const auto& calls, const auto& name, auto& b, const auto& counts, int,
              bool in_place) {
             return calls.reduce_scatter(name, input_of(b, in_place), view(b.result),
                                         ReduceOp::kSum, counts);
           },
       .goal = [](const auto& counts, int) { return Goal::reduce_scatter(counts); }},
      {.name = "all_gather",
       .takes_null_input = true,
       .make =
           [](const auto& calls, const auto& name, auto& b, const auto& counts, int,
              bool in_place) {
             return calls.all_gather(name, input_of(b, in_place), view(b.result), counts);
           },
       .goal = [](const auto& counts, int) { return Goal::all_gather(counts); }},
      {.name = "gather",
       .make =
           [](const auto& calls, const auto& name, auto& b, const auto& counts, int root, bool) {
             return calls.gather(name, view(b.input), b.result.data(), root, counts);
           },
       .goal = [](const auto& counts, int root) { return Goal::gather(root, counts); }},
      {.name = "scatter",
       .make =
           [](const auto& calls, const auto& name, auto& b, const auto& counts, int root, bool) {
             return calls.scatter(name, b.input.data(), view(b.result), root, counts);
           },
       .goal = [](const auto& counts, int root) { return Goal::scatter(root, counts); }},
      {.name = "all_to_all",
       .takes_counts = false,
       .make = [](const auto& calls, const auto& name, auto& b, const auto&, int,
                  bool) { return calls.all_to_all(name, b.input.data(), view(b.result), {}); },
       .goal =
           [](const auto& counts, int) {
             return Goal::all_to_all(
                 static_cast<int>(counts.size()),
                 std::vector<std::size_t>(counts.size() * counts.size(), counts[0]));
           }},
  };
}

class Collectives : public testing::TestWithParam<Call> {
 protected:
  /// Two uses of one name with other buffers.
  void expect_result(EngineJob& job, const std::vector<std::size_t>& counts, int root,
                     bool in_place, const std::string& name) {
    const Goal goal = GetParam().goal(counts, root);
    for (int use = 0; use < 2; ++use) {
      std::vector<Buffers> buffers;
      std::vector<std::shared_ptr<Operation>> operations;
      for (int rank = 0; rank < job.world_size(); ++rank) {
        buffers.push_back(buffers_for(goal, rank, in_place));
      }
      for (int rank = 0; rank < job.world_size(); ++rank) {
        OperationPool pool;
        auto& mine = buffers[static_cast<std::size_t>(rank)];
        operations.push_back(
            job.submit(rank, *GetParam().make(OperationCalls(pool, rank, job.world_size()), name,
                                              mine, counts, root, in_place)));
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
  const std::vector<std::vector<int>> shapes = {{1},    {2},       {3},         {1, 1},
                                                {2, 2}, {3, 1, 2}, {1, 2, 1, 1}};
  const std::vector<std::string> algorithms = goal_algorithm_texts();
  for (std::uint64_t seed = 0; seed < algorithms.size(); ++seed) {
    for (const std::vector<int>& nodes : shapes) {
      EngineJob job(
          ProcessGrid::with_node_sizes(nodes),
          {.collective_algorithm = algorithms[seed], .verify_schedules = !test::kSanitized}, seed);
      const auto ranks = static_cast<std::size_t>(job.world_size());
      for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{331}}) {
        std::vector<std::size_t> counts(ranks, count);
        const int root = static_cast<int>(seed % ranks);
        for (const bool is_uneven : {false, true}) {
          if (is_uneven && !GetParam().takes_counts) continue;
          if (is_uneven) counts[ranks - 1] += 3;
          for (const bool in_place : {false, true}) {
            if (in_place && !GetParam().takes_null_input) continue;
            expect_result(job, counts, root, in_place,
                          GetParam().name + std::to_string(count) + (is_uneven ? "v" : "") +
                              (in_place ? " in place" : ""));
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST_P(Collectives, MoveMoreThanTheirSlotsHold) {
  const auto shapes = test::kSanitized ? std::vector<std::vector<int>>{{3}, {2, 1}}
                                       : std::vector<std::vector<int>>{{2}, {3}, {2, 1}, {1, 1, 1}};
  for (const std::vector<int>& nodes : shapes) {
    for (const char* algorithm : {"direct", "ring", "pairwise"}) {
      if (nodes.size() == 1 && algorithm != std::string("direct")) continue;
      // On one node past the cache.
      const char* const costs = nodes.size() == 1 ? "memory_streamed_bytes_per_us=1e6" : "";
      EngineJob job(ProcessGrid::with_node_sizes(nodes),
                    {.collective_algorithm = algorithm,
                     .link_costs = costs,
                     .verify_schedules = nodes.size() == 1 && !test::kSanitized},
                    5);
      const std::vector<std::size_t> counts(static_cast<std::size_t>(job.world_size()),
                                            test::kSanitized ? 300'001 : 500'001);
      expect_result(job, counts, 0, false, "large");
      if (HasFatalFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Collectives, testing::ValuesIn(calls()),
                         [](const auto& each) { return each.param.name; });

// Each pair of calls that differ in one thing, in the table below, is an error that names both on
// all ranks; the next use of the name works.
TEST(CollectiveMismatch, IsTheSameErrorEverywhereAndHarmsNothing) {
  std::vector<float> in(64), out(64);
  std::vector<double> wide(64);
  std::string name;  // of the pair
  const std::vector<std::size_t> counts{6, 10, 8}, others{10, 6, 8};
  using Make =
      std::function<std::shared_ptr<Operation>(const OperationCalls&, std::vector<float>&)>;
  const auto gather = [&](const OperationCalls& calls, int root) {
    return calls.gather(name, {in.data(), 8, DType::kFloat32}, out.data(), root, {});
  };
  struct Pair {
    std::string what;
    Make usual, odd;
    std::string usual_text, odd_text;
  };
  const auto part = [](std::vector<float>& data, std::size_t count) {
    return BufferView{data.data(), count, DType::kFloat32};
  };
  const Make scatter_sum = [&](const auto& calls, auto& result) {
    return calls.reduce_scatter(name, in.data(), part(result, 8), ReduceOp::kSum, {});
  };
  const Make gather_all = [&](const auto& calls, auto& result) {
    return calls.all_gather(name, in.data(), part(result, 24), {});
  };
  const std::vector<Pair> pairs = {
      {"operation", scatter_sum, gather_all, "reduce_scatter float32 [8] each sum",
       "all_gather float32 [8] each"},
      {"reduction", scatter_sum,
       [&](const auto& calls, auto& result) {
         return calls.reduce_scatter(name, in.data(), part(result, 8), ReduceOp::kMax, {});
       },
       "each sum out of place", "each max out of place"},
      {"count", gather_all,
       [&](const auto& calls, auto& result) {
         return calls.all_gather(name, in.data(), part(result, 27), {});
       },
       "[8] each", "[9] each"},
      {"dtype", gather_all,
       [&](const auto& calls, auto&) {
         return calls.all_gather(name, in.data(), {wide.data(), 24, DType::kFloat64}, {});
       },
       "all_gather float32 [8]", "all_gather float64 [8]"},
      {"splits", gather_all,
       [&](const auto& calls, auto& result) {
         return calls.all_gather(name, in.data(), part(result, 24), counts);
       },
       "[8] each", "[6, 10, 8]"},
      {"uneven splits",
       [&](const auto& calls, auto& result) {
         return calls.all_gather(name, in.data(), part(result, 24), counts);
       },
       [&](const auto& calls, auto& result) {
         return calls.all_gather(name, in.data(), part(result, 24), others);
       },
       "[6, 10, 8]", "[10, 6, 8]"},
      {"place", gather_all,
       [&](const auto& calls, auto& result) {
         return calls.all_gather(name, nullptr, part(result, 24), {});
       },
       "each out of place", "all_gather float32 [8] each"},
      {"root", [&](const auto& calls, auto&) { return gather(calls, 0); },
       [&](const auto& calls, auto&) { return gather(calls, 1); }, "to rank 0", "to rank 1"},
  };
  EngineJob job(ProcessGrid::with_node_sizes({2, 1}), {.verify_schedules = true}, 3);
  for (const Pair& pair : pairs) {
    SCOPED_TRACE(pair.what);
    name = pair.what;
    for (const bool is_mixed : {true, false}) {
      std::vector<std::vector<float>> results(3, std::vector<float>(64));
      std::vector<std::shared_ptr<Operation>> operations;
      for (int rank = 0; rank < 3; ++rank) {
        OperationPool pool;
        const OperationCalls calls(pool, rank, 3);
        const Make& make = is_mixed && rank == 1 ? pair.odd : pair.usual;
        operations.push_back(
            job.submit(rank, *make(calls, results[static_cast<std::size_t>(rank)])));
      }
      job.finish(operations);
      const std::string error = error_of(*operations[0]);
      for (const auto& operation : operations) EXPECT_EQ(error_of(*operation), error);
      if (!is_mixed) {
        EXPECT_EQ(error, "");
      } else {
        EXPECT_THAT(error, testing::AllOf(testing::HasSubstr(pair.usual_text),
                                          testing::HasSubstr(pair.odd_text)));
      }
    }
  }
}

TEST(CollectiveCalls, SendEachRankAsMuchAsTheCountsSay) {
  const std::vector<std::size_t> counts{0, 5, 300, 7, 0, 1, 2, 64, 3};
  const Goal goal = Goal::all_to_all(3, counts);
  EngineJob job(ProcessGrid::with_node_sizes({2, 1}), {.verify_schedules = true}, 9);
  std::vector<Buffers> buffers;
  for (int rank = 0; rank < 3; ++rank) buffers.push_back(buffers_for(goal, rank, false));
  std::vector<std::shared_ptr<Operation>> operations;
  for (int rank = 0; rank < 3; ++rank) {
    OperationPool pool;
    auto& mine = buffers[static_cast<std::size_t>(rank)];
    operations.push_back(
        job.submit(rank, *OperationCalls(pool, rank, 3)
                              .all_to_all("x", mine.input.data(), view(mine.result), counts)));
  }
  job.finish(operations);
  for (const Buffers& mine : buffers) EXPECT_EQ(mine.result, mine.expected);
}

TEST(CollectiveCalls, RefuseWhatCannotBeMeant) {
  OperationPool pool;
  const OperationCalls calls(pool, 1, 3);
  std::vector<float> in(30), out(30);
  const std::vector<std::size_t> counts{1, 2, 3}, short_counts{1, 2};
  const auto refused = [](const std::function<void()>& call) -> std::string {
    try {
      call();
    } catch (const UsageError& e) {
      return e.what();
    }
    return "taken";
  };
  const BufferView result = view(out);
  EXPECT_THAT(refused([&] { calls.reduce("x", in.data(), result, 3, ReduceOp::kSum); }),
              testing::HasSubstr("'x': the root 3 is not a rank"));
  EXPECT_THAT(refused([&] { calls.all_gather("x", in.data(), result, short_counts); }),
              testing::HasSubstr("2 counts for 3 ranks"));
  EXPECT_THAT(refused([&] { calls.all_gather("x", in.data(), result, counts); }),
              testing::HasSubstr("the result has 30 elements where the counts say 6"));
  EXPECT_THAT(refused([&] {
                calls.reduce_scatter("x", in.data(), {out.data(), 3, DType::kFloat32},
                                     ReduceOp::kSum, counts);
              }),
              testing::HasSubstr("the result has 3 elements where the counts say 2"));
  EXPECT_THAT(refused([&] {
                calls.all_to_all("x", in.data(), {out.data(), 10, DType::kFloat32}, {});
              }),
              testing::HasSubstr("10 elements are not as many for each of 3 ranks"));
  EXPECT_THAT(refused([&] { calls.all_to_all("x", out.data(), result, {}); }),
              testing::HasSubstr("overlap"));
  EXPECT_THAT(refused([&] { calls.all_to_all("x", nullptr, result, {}); }),
              testing::HasSubstr("a buffer is null"));
  EXPECT_THAT(refused([&] { calls.all_to_all("x", in.data(), result, counts); }),
              testing::HasSubstr("3 counts for 9 pairs of ranks"));
  const std::vector<std::size_t> pairs{0, 1, 2, 3, 4, 5, 6, 7, 8};
  EXPECT_THAT(refused([&] { calls.all_to_all("x", in.data(), result, pairs); }),
              testing::HasSubstr("the result has 30 elements where the counts say 12"));
  BufferView device = result;
  device.memory = MemoryKind::kDevice;
  EXPECT_THAT(refused([&] { calls.all_gather("x", in.data(), device, {}); }),
              testing::HasSubstr("host memory only"));
}

}  // namespace
}  // namespace kolo
