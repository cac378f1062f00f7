// A grouped operation gives each of its tensors what the operation on that tensor alone gives it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "runtime/calls/operation_calls.h"
#include "tests/support/calls/sized_tensor.h"
#include "tests/support/engine_job.h"

namespace kolo {
namespace {

using test::Caller;
using test::EngineJob;
using test::error_of;
using testing::HasSubstr;

/// A kind of operation.
struct Collective {
  std::string name;
  OperationKind kind;
  bool can_be_in_place = true;
};

std::vector<Collective> collectives() {
  using Kind = OperationKind;
  return {{"all_reduce", Kind::kAllReduce}, {"broadcast", Kind::kBroadcast},
          {"reduce", Kind::kReduce},        {"reduce_scatter", Kind::kReduceScatter, false},
          {"all_gather", Kind::kAllGather}, {"gather", Kind::kGather},
          {"scatter", Kind::kScatter},      {"all_to_all", Kind::kAllToAll}};
}

/// The buffers of one tensor at one rank. Elements are small integers, so that sums are exact.
struct TensorMemory {
  std::vector<float> input, result;
};

/// `floats` is how many of them an element is. The last rank is the root.
TensorMemory memory_of(const Collective& collective, int rank, int ranks, std::size_t tensor,
                       std::size_t floats, bool in_place) {
  TensorMemory buffers;
  const bool is_root = rank + 1 == ranks;
  const bool gathers = collective.kind == OperationKind::kGather;
  const bool scatters = collective.kind == OperationKind::kScatter;
  const bool has_input = !in_place || scatters || (gathers && !is_root);
  const bool has_result = !(in_place && scatters && is_root);
  const Caller caller{collective.kind, rank, ranks};
  if (has_result) buffers.result.resize(caller.elements(floats, {}, true));
  if (has_input) buffers.input.resize(caller.elements(floats, {}, false));
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
    const OperationKind kind = collective().kind;
    std::vector<std::vector<TensorMemory>> together(ranks), alone(ranks);
    for (int use = 0; use < 2; ++use) {
      std::vector<std::shared_ptr<Operation>> operations;
      for (int rank = 0; rank < job.world_size(); ++rank) {
        OperationPool pool;
        const OperationCalls calls(pool, rank, job.world_size());
        const auto me = static_cast<std::size_t>(rank);
        together[me].clear();
        for (std::size_t t = 0; t < counts.size(); ++t) {
          together[me].push_back(memory_of(collective(), rank, job.world_size(), t,
                                           counts[t] * per_element, in_place));
        }
        alone[me] = together[me];
        const auto tensor = [&](std::size_t t, TensorMemory& mine) {
          return Caller{kind, rank, job.world_size()}.tensor(counts[t], {}, mine.input.data(),
                                                             mine.result.data(), dtype, in_place);
        };
        std::vector<Tensor> tensors;
        for (std::size_t t = 0; t < counts.size(); ++t) {
          tensors.push_back(tensor(t, together[me][t]));
        }
        operations.push_back(job.submit(rank, *calls.make(kind, "all", tensors, root, reduction)));
        for (std::size_t t = 0; t < counts.size(); ++t) {
          if (counts[t] == 0) continue;
          const std::string name = "tensor " + std::to_string(t);
          operations.push_back(
              job.submit(rank, *calls.make(kind, name, tensor(t, alone[me][t]), root, reduction)));
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
    const Tensor tensors[] = {first[me], second[me]};
    OperationPool pool;
    operations.push_back(job.submit(
        rank, *OperationCalls(pool, rank, 3).make(OperationKind::kBroadcast, "x", tensors, 1)));
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
    std::vector<Tensor> tensors;
    std::size_t first = 0;
    for (const std::size_t count : counts[static_cast<std::size_t>(rank)]) {
      tensors.push_back(BufferView(memory.data() + first, count));
      first += count;
    }
    operations.push_back(job.submit(rank, *calls.make(OperationKind::kAllReduce, name, tensors)));
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
               {"one", {30}, "all_reduce float32 [30] sum"},
               {"many", std::vector<std::size_t>(30, 1), "all_reduce float32 in 30 tensors (hash"}};
  for (const auto& pair : pairs) {
    EXPECT_THAT(
        error_of_all_reduces(job, pair.what, {usual, pair.odd}),
        testing::AllOf(HasSubstr("all_reduce float32 [10] + [20] sum"), HasSubstr(pair.odd_text)));
    EXPECT_EQ(error_of_all_reduces(job, pair.what, {usual, usual}), "");
  }
}

/// The error of rank 0 of 2, or "".
std::string error_of_list(OperationKind kind, const std::vector<Tensor>& tensors, int root = 0) {
  OperationPool pool;
  try {
    OperationCalls(pool, 0, 2).make(kind, "x", tensors, root);
    return {};
  } catch (const UsageError& e) {
    return e.what();
  }
}

TEST(GroupedCalls, NameWhatIsWrong) {
  using Kind = OperationKind;
  std::vector<float> a(8), b(8), c(8);
  std::vector<double> wide(8);
  EXPECT_THAT(error_of_list(Kind::kAllReduce, {}), HasSubstr("'x': there are no tensors"));
  EXPECT_THAT(error_of_list(Kind::kAllReduce, {{a, b}, c}),
              HasSubstr("tensors 0 and 1 differ: one works in place and the other does not"));
  EXPECT_THAT(error_of_list(Kind::kAllReduce, {a, wide}),
              HasSubstr("buffers of float32 in host memory and of float64 in host memory"));
  // At the root of a gather or scatter some may be in place.
  EXPECT_EQ(error_of_list(Kind::kGather, {a, {{b.data(), 4}, c}}), "");
  EXPECT_EQ(error_of_list(Kind::kScatter, {a, {b, {c.data(), 4}}}), "");
}

TEST(GroupedCalls, RefuseTensorsThatShareMemory) {
  using Kind = OperationKind;
  std::vector<float> a(16), b(16);
  const auto error = [](Kind kind, const std::vector<Tensor>& tensors, int root = 0) {
    return error_of_list(kind, tensors, root);
  };
  const auto at = [](float& first, std::size_t count = 4) { return BufferView(&first, count); };
  const auto shares = HasSubstr("'x': tensors 0 and 2 of the list share memory");
  const Tensor other = at(b[0]);
  EXPECT_THAT(error(Kind::kAllReduce, {at(a[0]), other, at(a[0])}), shares);
  EXPECT_THAT(error(Kind::kAllReduce, {at(a[0]), other, at(a[3])}), shares);
  EXPECT_EQ(error(Kind::kAllReduce, {at(a[0]), other, at(a[4])}), "");
  // One input may have two results, but no result is another's input.
  EXPECT_EQ(error(Kind::kAllReduce, {{at(a[0]), at(b[0])}, {at(a[0]), at(b[4])}}), "");
  EXPECT_THAT(
      error(Kind::kAllReduce, {{at(a[0]), at(b[0])}, {at(a[8]), at(b[8])}, {at(b[4]), at(a[3])}}),
      shares);
  // Parts of all ranks count.
  EXPECT_THAT(
      error(Kind::kAllGather,
            {{at(a[0]), at(b[0], 8)}, {at(a[4], 1), at(b[8], 2)}, {at(a[8], 1), at(b[7], 2)}}),
      shares);
  // A broadcast may have a tensor twice, and the root of a reduce alone writes.
  EXPECT_EQ(error(Kind::kBroadcast, {at(a[0]), other, at(a[0])}, 1), "");
  EXPECT_THAT(error(Kind::kBroadcast, {at(a[0]), other, at(a[1])}, 1), shares);
  EXPECT_EQ(error(Kind::kReduce, {{at(a[0]), at(b[0])}, {at(a[4]), at(b[0])}}, 1), "");
  EXPECT_THAT(error(Kind::kReduce, {{at(a[0]), at(b[0])}, {at(a[4]), at(b[0])}}, 0),
              HasSubstr("tensors 0 and 1"));
}

}  // namespace
}  // namespace kolo
