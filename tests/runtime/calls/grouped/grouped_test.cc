// A grouped operation gives each of its tensors what the operation on that tensor alone gives it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "runtime/calls/operation_calls.h"
#include "tests/support/engine_job.h"

namespace kolo {
namespace {

using test::EngineJob;
using test::error_of;
using testing::HasSubstr;

/// A kind of operation, with the sizes of its buffers in parts of a tensor.
struct Collective {
  std::string name;
  OperationKind kind;
  bool has_all_inputs = false;   ///< The input holds a part for each rank.
  bool has_all_results = false;  ///< So does the result.
  bool can_be_in_place = false;

  std::size_t input_parts(std::size_t ranks) const { return has_all_inputs ? ranks : 1; }
  std::size_t result_parts(std::size_t ranks) const { return has_all_results ? ranks : 1; }
};

std::vector<Collective> collectives() {
  return {
      {.name = "all_reduce", .kind = OperationKind::kAllReduce, .can_be_in_place = true},
      {.name = "broadcast", .kind = OperationKind::kBroadcast, .can_be_in_place = true},
      {.name = "reduce", .kind = OperationKind::kReduce, .can_be_in_place = true},
      {.name = "reduce_scatter", .kind = OperationKind::kReduceScatter, .has_all_inputs = true},
      {.name = "all_gather",
       .kind = OperationKind::kAllGather,
       .has_all_results = true,
       .can_be_in_place = true},
      {.name = "gather",
       .kind = OperationKind::kGather,
       .has_all_results = true,
       .can_be_in_place = true},
      {.name = "scatter",
       .kind = OperationKind::kScatter,
       .has_all_inputs = true,
       .can_be_in_place = true},
      {.name = "all_to_all",
       .kind = OperationKind::kAllToAll,
       .has_all_inputs = true,
       .has_all_results = true,
       .can_be_in_place = true},
  };
}

/// The operation on one tensor. `part` is the result, or for a gather as many elements of it as
/// this rank contributes; `all` the result with the parts of all ranks.
std::shared_ptr<Operation> on_one_tensor(const OperationCalls& calls, OperationKind kind,
                                         const std::string& name, void* input,
                                         const BufferView& part, const BufferView& all, int root,
                                         const Reduction& reduction) {
  switch (kind) {
    case OperationKind::kAllReduce:
      return input == nullptr ? calls.all_reduce(name, part, reduction)
                              : calls.all_reduce(name, input, part, reduction);
    case OperationKind::kBroadcast:
      return input == nullptr ? calls.broadcast(name, part, root)
                              : calls.broadcast(name, input, part, root);
    case OperationKind::kReduce:
      return calls.reduce(name, input, part, root, reduction);
    case OperationKind::kReduceScatter:
      return calls.reduce_scatter(name, input, part, reduction, {});
    case OperationKind::kAllGather:
      return calls.all_gather(name, input, all, {});
    case OperationKind::kGather:
      return calls.gather(name, {input, part.count, part.dtype}, all.data, root, {});
    case OperationKind::kScatter:
      return calls.scatter(name, input, part, root, {});
    default:
      return calls.all_to_all(name, input, all, {});
  }
}

/// The buffers of one tensor at one rank. Elements are small integers, so that sums are exact.
struct Buffers {
  std::vector<float> input, result;
};

/// `floats` is how many of them an element is. The last rank is the root.
Buffers buffers_of(const Collective& collective, int rank, std::size_t ranks, std::size_t tensor,
                   std::size_t floats, bool in_place) {
  Buffers buffers;
  const bool is_root = static_cast<std::size_t>(rank) + 1 == ranks;
  const bool gathers = collective.kind == OperationKind::kGather;
  const bool scatters = collective.kind == OperationKind::kScatter;
  const bool has_input = !in_place || scatters || (gathers && !is_root);
  const bool has_result = !(in_place && scatters && is_root);
  if (has_result) buffers.result.resize(collective.result_parts(ranks) * floats);
  if (has_input) buffers.input.resize(collective.input_parts(ranks) * floats);
  std::vector<float>& contribution = has_input ? buffers.input : buffers.result;
  for (std::size_t i = 0; i < contribution.size(); ++i) {
    contribution[i] = static_cast<float>((i + 5 * tensor) % 13 + static_cast<std::size_t>(rank));
  }
  return buffers;
}

class Grouped : public testing::TestWithParam<std::tuple<Collective, MemoryKind>> {
 protected:
  const Collective& collective() const { return std::get<Collective>(GetParam()); }

  /// Runs the operation on tensors of so many elements together, and on each alone.
  void expect_same(EngineJob& job, const std::vector<std::size_t>& counts, DType dtype,
                   bool in_place, const Reduction& reduction = {}) {
    const std::size_t per_element = size_of(dtype) / sizeof(float);
    const auto ranks = static_cast<std::size_t>(job.world_size());
    const int root = job.world_size() - 1;
    std::vector<std::vector<Buffers>> together(ranks), alone(ranks);
    for (int use = 0; use < 2; ++use) {
      std::vector<std::shared_ptr<Operation>> operations;
      for (int rank = 0; rank < job.world_size(); ++rank) {
        OperationPool pool;
        const OperationCalls calls(pool, rank, job.world_size());
        const auto me = static_cast<std::size_t>(rank);
        together[me].clear();
        alone[me].clear();
        for (std::size_t t = 0; t < counts.size(); ++t) {
          together[me].push_back(
              buffers_of(collective(), rank, ranks, t, counts[t] * per_element, in_place));
          alone[me].push_back(together[me].back());
        }
        std::vector<TensorBuffers> tensors;
        for (std::size_t t = 0; t < counts.size(); ++t) {
          Buffers& mine = together[me][t];
          tensors.push_back(
              {.input = mine.input.data(), .result = mine.result.data(), .count = counts[t]});
        }
        operations.push_back(
            job.submit(rank, *calls.grouped(collective().kind, "all",
                                            {.dtype = dtype, .each = tensors}, root, reduction)));
        for (std::size_t t = 0; t < counts.size(); ++t) {
          Buffers& mine = alone[me][t];
          if (counts[t] == 0) continue;
          operations.push_back(job.submit(
              rank,
              *on_one_tensor(calls, collective().kind, "tensor " + std::to_string(t),
                             mine.input.data(), {mine.result.data(), counts[t], dtype},
                             {mine.result.data(), counts[t] * ranks, dtype}, root, reduction)));
        }
      }
      job.finish(operations);
      for (const auto& operation : operations) ASSERT_EQ(error_of(*operation), "");
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        for (std::size_t t = 0; t < counts.size(); ++t) {
          EXPECT_EQ(together[rank][t].result, alone[rank][t].result)
              << "rank " << rank << " tensor " << t << " use " << use;
          EXPECT_EQ(together[rank][t].input, alone[rank][t].input);
        }
      }
    }
  }
};

TEST_P(Grouped, GivesEachTensorWhatItGetsAlone) {
  for (const std::vector<int>& nodes :
       std::vector<std::vector<int>>{{1}, {2}, {3}, {1, 1}, {2, 1}, {2, 2}}) {
    for (const bool in_place : {false, true}) {
      if (in_place && !collective().can_be_in_place) continue;
      EngineJob job(ProcessGrid::with_node_sizes(nodes),
                    test::by_hierarchies({.verify_schedules = true}), 3,
                    test::devices_for(std::get<MemoryKind>(GetParam())));
      expect_same(job, {7, 0, 331, 1}, DType::kFloat32, in_place);
      expect_same(job, {5}, DType::kFloat32, in_place);
      expect_same(job, {3'000, 1, 2'000}, DType::kFloat32, in_place);
      expect_same(job, std::vector<std::size_t>(40, 3), DType::kComplex64, in_place);
      expect_same(job, {0, 0}, DType::kFloat32, in_place);
    }
  }
}

class GroupedReductions : public Grouped {};

TEST_P(GroupedReductions, GoByOperationAndScales) {
  const Reduction reductions[] = {
      ReduceOp::kAverage,
      ReduceOp::kMin,
      ReduceOp::kMax,
      ReduceOp::kProd,
      {ReduceOp::kSum, {.before = 0.5, .after = 4}},
      {ReduceOp::kPremulSum, {.before = 0.25}},
  };
  for (const Reduction& reduction : reductions) {
    SCOPED_TRACE(to_string(reduction.op));
    for (const std::vector<int>& nodes : {std::vector<int>{2, 1}, {2, 2}}) {
      EngineJob job(ProcessGrid::with_node_sizes(nodes),
                    test::by_hierarchies({.verify_schedules = true}), 6,
                    test::devices_for(std::get<MemoryKind>(GetParam())));
      expect_same(job, {7, 0, 331, 1}, DType::kFloat32, false, reduction);
    }
  }
}

std::vector<Collective> reductions_of_all() {
  std::vector<Collective> result = collectives();
  std::erase_if(result, [](const Collective& each) {
    return each.kind != OperationKind::kAllReduce && each.kind != OperationKind::kReduce &&
           each.kind != OperationKind::kReduceScatter;
  });
  return result;
}

std::string name_of(const testing::TestParamInfo<std::tuple<Collective, MemoryKind>>& each) {
  return std::get<0>(each.param).name + "_" +
         std::string(to_string(std::get<MemoryKind>(each.param)));
}

INSTANTIATE_TEST_SUITE_P(All, Grouped,
                         testing::Combine(testing::ValuesIn(collectives()),
                                          testing::Values(MemoryKind::kHost, MemoryKind::kDevice)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(All, GroupedReductions,
                         testing::Combine(testing::ValuesIn(reductions_of_all()),
                                          testing::Values(MemoryKind::kHost, MemoryKind::kDevice)),
                         name_of);

TEST(GroupedBroadcast, CopiesAllTensorsOfTheRoot) {
  EngineJob job(ProcessGrid::with_node_sizes({2, 1}), {.verify_schedules = true}, 4);
  std::vector<std::vector<float>> first(3), second(3);
  std::vector<std::shared_ptr<Operation>> operations;
  for (int rank = 0; rank < 3; ++rank) {
    const auto me = static_cast<std::size_t>(rank);
    first[me].assign(100, static_cast<float>(rank));
    second[me].assign(3, static_cast<float>(rank) + 10);
    const TensorBuffers tensors[] = {{.result = first[me].data(), .count = 100},
                                     {.result = second[me].data(), .count = 3}};
    OperationPool pool;
    operations.push_back(
        job.submit(rank, *OperationCalls(pool, rank, 3)
                              .grouped(OperationKind::kBroadcast, "x",
                                       {.dtype = DType::kFloat32, .each = tensors}, 1)));
  }
  job.finish(operations);
  for (const auto& operation : operations) EXPECT_EQ(error_of(*operation), "");
  for (const auto& values : first) EXPECT_THAT(values, testing::Each(1.0F));
  for (const auto& values : second) EXPECT_THAT(values, testing::Each(11.0F));
}

/// Both ranks submit an all-reduce of tensors of these counts, or of one of 30 elements; returns
/// the error of both.
std::string error_of_all_reduces(EngineJob& job, const std::string& name,
                                 const std::vector<std::vector<std::size_t>>& counts) {
  std::vector<float> memory(100);
  std::vector<std::shared_ptr<Operation>> operations;
  for (int rank = 0; rank < 2; ++rank) {
    OperationPool pool;
    const OperationCalls calls(pool, rank, 2);
    std::vector<TensorBuffers> tensors;
    std::size_t first = 0;
    for (const std::size_t count : counts[static_cast<std::size_t>(rank)]) {
      tensors.push_back({.result = memory.data() + first, .count = count});
      first += count;
    }
    const auto operation =
        tensors.empty()
            ? calls.all_reduce(name, {memory.data(), 30, DType::kFloat32}, ReduceOp::kSum)
            : calls.grouped(OperationKind::kAllReduce, name,
                            {.dtype = DType::kFloat32, .each = tensors});
    operations.push_back(job.submit(rank, *operation));
  }
  job.finish(operations);
  EXPECT_EQ(error_of(*operations[1]), error_of(*operations[0]));
  return error_of(*operations[0]);
}

TEST(GroupedMismatch, IsTheSameErrorEverywhereAndHarmsNothing) {
  EngineJob job(ProcessGrid::with_node_sizes({1, 1}), {}, 5);
  const std::vector<std::size_t> usual{10, 20};
  const struct {
    std::string what;
    std::vector<std::size_t> odd;
    std::string odd_text;
  } pairs[] = {{"order", {20, 10}, "all_reduce float32 [20] + [10] sum"},
               {"number", {10, 20, 1}, "all_reduce float32 [10] + [20] + [1] sum"},
               {"one", {}, "all_reduce float32 [30] sum"},
               {"many", std::vector<std::size_t>(30, 1), "all_reduce float32 in 30 tensors (hash"}};
  for (const auto& pair : pairs) {
    EXPECT_THAT(
        error_of_all_reduces(job, pair.what, {usual, pair.odd}),
        testing::AllOf(HasSubstr("all_reduce float32 [10] + [20] sum"), HasSubstr(pair.odd_text)));
    EXPECT_EQ(error_of_all_reduces(job, pair.what, {usual, usual}), "");
  }
}

TEST(GroupedCalls, NameWhatIsWrong) {
  OperationPool pool;
  const OperationCalls calls(pool, 0, 2);
  std::vector<float> a(8), b(8);
  const auto error = [&](OperationKind kind, const std::vector<TensorBuffers>& tensors,
                         int root = 0) -> std::string {
    try {
      calls.grouped(kind, "x", {.dtype = DType::kFloat32, .each = tensors}, root);
      return {};
    } catch (const UsageError& e) {
      return e.what();
    }
  };
  using Kind = OperationKind;
  EXPECT_THAT(error(Kind::kAllReduce, {}), HasSubstr("'x': there are no tensors"));
  EXPECT_THAT(error(Kind::kAllReduce, {{a.data(), b.data(), 4}, {nullptr, a.data(), 4}}),
              HasSubstr("one tensor has no input"));
  EXPECT_THAT(error(Kind::kAllReduce, {{a.data(), nullptr, 4}}),
              HasSubstr("one tensor has no result"));
  EXPECT_THAT(error(Kind::kAllGather, {{a.data(), a.data() + 2, 4}}), HasSubstr("overlap"));
  EXPECT_THAT(error(Kind::kBroadcast, {{a.data(), b.data(), 4}, {nullptr, b.data() + 4, 4}}),
              HasSubstr("one tensor has no input"));
  EXPECT_THAT(error(Kind::kBroadcast, {{a.data(), a.data() + 2, 4}}),
              HasSubstr("overlap; pass one buffer to work in place"));
  EXPECT_EQ(error(Kind::kBroadcast, {{a.data(), a.data(), 4}, {nullptr, b.data(), 4}}, 1), "");
  EXPECT_THAT(error(Kind::kScatter, {{nullptr, b.data(), 4}}), HasSubstr("has no input"));
  EXPECT_EQ(error(Kind::kScatter, {{nullptr, b.data(), 4}}, 1), "");
  EXPECT_THAT(error(Kind::kGather, {{a.data(), nullptr, 4}}), HasSubstr("has no result"));
  EXPECT_EQ(error(Kind::kGather, {{a.data(), nullptr, 4}}, 1), "");
  EXPECT_EQ(error(Kind::kGather, {{nullptr, b.data(), 4}, {a.data(), b.data() + 8, 0}}), "");
  EXPECT_THAT(error(Kind::kGather, {{nullptr, b.data(), 4}}, 1), HasSubstr("has no input"));
  EXPECT_EQ(error(Kind::kScatter, {{a.data(), nullptr, 4}}), "");
  EXPECT_THAT(error(Kind::kScatter, {{a.data(), nullptr, 4}}, 1), HasSubstr("has no result"));
  EXPECT_THAT(error(Kind::kReduce, {{nullptr, b.data(), 4}}, 2), HasSubstr("the root 2"));
}

TEST(GroupedCalls, RefuseTensorsThatShareMemory) {
  OperationPool pool;
  const OperationCalls calls(pool, 0, 2);
  std::vector<float> a(16), b(16);
  const auto error = [&](OperationKind kind, const std::vector<TensorBuffers>& tensors,
                         int root = 0) -> std::string {
    try {
      calls.grouped(kind, "x", {.dtype = DType::kFloat32, .each = tensors}, root);
      return {};
    } catch (const UsageError& e) {
      return e.what();
    }
  };
  using Kind = OperationKind;
  const auto shares = HasSubstr("'x': tensors 0 and 2 of the list share memory");
  const TensorBuffers other{nullptr, b.data(), 4};
  EXPECT_THAT(error(Kind::kAllReduce, {{nullptr, a.data(), 4}, other, {nullptr, a.data(), 4}}),
              shares);
  EXPECT_THAT(error(Kind::kAllReduce, {{nullptr, a.data(), 4}, other, {nullptr, &a[3], 4}}),
              shares);
  EXPECT_EQ(error(Kind::kAllReduce, {{nullptr, a.data(), 4}, other, {nullptr, &a[4], 4}}), "");
  // One input may have two results, but no result is another's input.
  EXPECT_EQ(error(Kind::kAllReduce, {{a.data(), &b[0], 4}, {a.data(), &b[4], 4}}), "");
  EXPECT_THAT(
      error(Kind::kAllReduce, {{a.data(), b.data(), 4}, {&a[8], &b[8], 4}, {&b[2], &a[4], 4}}),
      shares);
  // Parts of all ranks count.
  EXPECT_THAT(
      error(Kind::kAllGather, {{a.data(), b.data(), 4}, {&a[4], &b[8], 1}, {&a[8], &b[7], 1}}),
      shares);
  // A broadcast may have a tensor twice, and the root of a reduce alone writes.
  EXPECT_EQ(error(Kind::kBroadcast, {{nullptr, a.data(), 4}, other, {nullptr, a.data(), 4}}, 1),
            "");
  EXPECT_THAT(error(Kind::kBroadcast, {{nullptr, a.data(), 4}, other, {nullptr, &a[1], 4}}, 1),
              shares);
  EXPECT_EQ(error(Kind::kReduce, {{a.data(), b.data(), 4}, {&a[4], b.data(), 4}}, 1), "");
  EXPECT_THAT(error(Kind::kReduce, {{a.data(), b.data(), 4}, {&a[4], b.data(), 4}}, 0),
              HasSubstr("tensors 0 and 1"));
}

}  // namespace
}  // namespace kolo
