// In a grouped operation, each tensor gets the result of the operation on that tensor alone.

#include <gmock/gmock.h>

#include "runtime/calls/operation_calls.h"
#include "tests/support/calls/sized_tensor.h"
#include "tests/support/engine_job.h"

namespace kolo {
namespace {

using test::Caller;
using test::EngineJob;
using test::error_of;
using testing::HasSubstr;

std::vector<OperationKind> collectives_that(bool (*holds)(OperationKind)) {
  std::vector<OperationKind> result(kAllCollectiveKinds.begin(), kAllCollectiveKinds.end());
  std::erase_if(result, [&](OperationKind each) { return !holds(each); });
  return result;
}

/// The elements of a tensor: equal parts, or the elements of each rank's or each pair's part.
struct Elements {
  std::size_t each = 0;
  std::vector<std::size_t> parts = {};
};

/// One rank's buffers for a tensor, in floats. They hold small integers, so that sums are exact.
struct TensorMemory {
  std::vector<float> input, result;
};

class Grouped : public testing::TestWithParam<std::tuple<OperationKind, MemoryKind>> {
 protected:
  static OperationKind kind() { return std::get<OperationKind>(GetParam()); }

  static EngineJob job_on(const std::vector<int>& nodes) {
    return EngineJob(ProcessGrid::with_node_sizes(nodes),
                     test::by_hierarchies({.verify_schedules = true}), 3,
                     test::devices_for(std::get<MemoryKind>(GetParam())));
  }

  /// Draws the buffers of a rank. The last rank is the root. In a gather or scatter in place, the
  /// root has one buffer, and so has each other rank. An element consists of `floats` floats.
  static TensorMemory draw(const Caller& caller, const Elements& of, std::size_t number,
                           std::size_t floats, bool in_place) {
    const std::size_t input = caller.elements(of.each, of.parts, false) * floats;
    const std::size_t result = caller.elements(of.each, of.parts, true) * floats;
    const bool is_root = caller.rank + 1 == caller.ranks;
    const bool gathers = is_up_to_root(kind()) && is_to_root(kind());
    const bool scatters = is_up_to_root(kind()) && is_from_root(kind());
    const bool has_input = !in_place || scatters || (gathers && !is_root);
    const bool has_result = !(in_place && scatters && is_root);
    TensorMemory memory;
    if (has_result) memory.result.resize(has_input ? result : std::max(input, result));
    if (has_input) memory.input.resize(input);
    std::vector<float>& contribution = has_input ? memory.input : memory.result;
    for (std::size_t i = 0; i < contribution.size(); ++i) {
      contribution[i] =
          static_cast<float>((i + 5 * number) % 13 + 20 * static_cast<std::size_t>(caller.rank));
    }
    return memory;
  }

  /// Runs the operation on all tensors together, twice, and on each tensor alone.
  static void expect_same(EngineJob& job, const std::vector<Elements>& tensors, DType dtype,
                          bool in_place, const Reduction& reduction = {}) {
    const std::size_t floats = size_of(dtype) / sizeof(float);
    const auto ranks = static_cast<std::size_t>(job.world_size());
    const int root = job.world_size() - 1;
    std::vector<std::vector<TensorMemory>> together(ranks), alone(ranks);
    for (int use = 0; use < 2; ++use) {
      std::vector<std::shared_ptr<Operation>> operations;
      for (int rank = 0; rank < job.world_size(); ++rank) {
        OperationPool pool;
        const OperationCalls calls(pool, rank, job.world_size());
        const Caller caller{kind(), rank, job.world_size()};
        auto& mine = together[static_cast<std::size_t>(rank)];
        auto& apart = alone[static_cast<std::size_t>(rank)];
        mine.clear();
        for (std::size_t t = 0; t < tensors.size(); ++t) {
          mine.push_back(draw(caller, tensors[t], t, floats, in_place));
        }
        apart = mine;
        const auto tensor = [&](std::size_t t, TensorMemory& memory) {
          return caller.tensor(tensors[t].each, tensors[t].parts, memory.input.data(),
                               memory.result.data(), dtype, in_place);
        };
        std::vector<Tensor> all;
        for (std::size_t t = 0; t < tensors.size(); ++t) {
          all.push_back(tensor(t, mine[t]));
          if (tensors[t].each == 0 && tensors[t].parts.empty()) continue;
          const std::string name = "tensor " + std::to_string(t);
          operations.push_back(
              job.submit(rank, *calls.make(kind(), name, tensor(t, apart[t]), root, reduction)));
        }
        operations.push_back(job.submit(rank, *calls.make(kind(), "all", all, root, reduction)));
      }
      job.finish(operations);
      for (const auto& operation : operations) ASSERT_EQ(error_of(*operation), "");
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        for (std::size_t t = 0; t < tensors.size(); ++t) {
          EXPECT_EQ(together[rank][t].result, alone[rank][t].result)
              << "rank " << rank << " tensor " << t << " use " << use;
          EXPECT_EQ(together[rank][t].input, alone[rank][t].input);
        }
      }
    }
  }
};

const std::vector<std::vector<int>> kShapes = {{1}, {2}, {3}, {1, 1}, {2, 1}, {2, 2}};

TEST_P(Grouped, GivesEachTensorWhatItGetsAlone) {
  for (const std::vector<int>& nodes : kShapes) {
    for (const bool in_place : {false, true}) {
      EngineJob job = job_on(nodes);
      expect_same(job, {{7}, {0}, {331}, {1}}, DType::kFloat32, in_place);
      expect_same(job, {{5}}, DType::kFloat32, in_place);
      expect_same(job, {{3'000}, {1}, {2'000}}, DType::kFloat32, in_place);
      expect_same(job, std::vector<Elements>(40, {3}), DType::kComplex64, in_place);
      expect_same(job, {{0}, {0}}, DType::kFloat32, in_place);
    }
  }
}

class GroupedParts : public Grouped {};

TEST_P(GroupedParts, MayDiffer) {
  for (const std::vector<int>& nodes : kShapes) {
    for (const bool in_place : {false, true}) {
      EngineJob job = job_on(nodes);
      const auto ranks = static_cast<std::size_t>(job.world_size());
      const bool is_of_pairs = has_pairs(kind());
      const std::size_t parts = is_of_pairs ? ranks * ranks : ranks;
      const Elements even{.parts = std::vector<std::size_t>(parts, 4)};
      const Elements nothing{.parts = std::vector<std::size_t>(parts, 0)};
      Elements uneven = nothing, sparse = nothing, large = nothing;
      for (std::size_t i = 0; i < parts; ++i) {
        // In place, two ranks exchange equally many elements in both directions.
        const std::size_t number = in_place && is_of_pairs ? i / ranks + i % ranks : i;
        uneven.parts[i] = (5 * number + 3) % 7;
        sparse.parts[i] = i + 1 == parts ? 1 : 0;
        large.parts[i] = 200 * number + 17;
      }
      expect_same(job, {uneven, even, nothing, sparse}, DType::kFloat32, in_place);
      expect_same(job, {sparse}, DType::kFloat32, in_place);
      expect_same(job, {even, even}, DType::kFloat32, in_place);
      expect_same(job, {nothing, nothing}, DType::kFloat32, in_place);
      expect_same(job, {large, uneven, large}, DType::kComplex64, in_place);
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
      EngineJob job = job_on(nodes);
      expect_same(job, {{7}, {0}, {331}, {1}}, DType::kFloat32, false, reduction);
    }
  }
}

std::string name_of(const testing::TestParamInfo<std::tuple<OperationKind, MemoryKind>>& each) {
  return std::string(call_name(std::get<0>(each.param))) + "_" +
         std::string(to_string(std::get<MemoryKind>(each.param)));
}

INSTANTIATE_TEST_SUITE_P(All, Grouped,
                         testing::Combine(testing::ValuesIn(kAllCollectiveKinds),
                                          testing::Values(MemoryKind::kHost, MemoryKind::kDevice)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(All, GroupedReductions,
                         testing::Combine(testing::ValuesIn(collectives_that(reduces)),
                                          testing::Values(MemoryKind::kHost, MemoryKind::kDevice)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(All, GroupedParts,
                         testing::Combine(testing::ValuesIn(collectives_that(has_parts)),
                                          testing::Values(MemoryKind::kHost, MemoryKind::kDevice)),
                         name_of);

/// Returns the error of a call by rank 0 of 2, or an empty string.
std::string error_of_call(OperationKind kind, const Tensors& tensors, int root = 0) {
  OperationPool pool;
  try {
    OperationCalls(pool, 0, 2).make(kind, "x", tensors, root);
    return {};
  } catch (const UsageError& e) {
    return e.what();
  }
}

std::string error_of_list(OperationKind kind, const std::vector<Tensor>& tensors, int root = 0) {
  return error_of_call(kind, tensors, root);
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
  // At the root of a gather or scatter, some tensors may be in place.
  EXPECT_EQ(error_of_list(Kind::kGather, {a, {{b.data(), 4}, c}}), "");
  EXPECT_EQ(error_of_list(Kind::kScatter, {a, {b, {c.data(), 4}}}), "");
}

TEST(GroupedCalls, RefuseTensorsThatShareMemory) {
  using Kind = OperationKind;
  std::vector<float> a(16), b(16);
  const auto at = [](float& first, std::size_t count = 4) { return BufferView(&first, count); };
  const auto shares = HasSubstr("'x': tensors 0 and 2 of the list share memory");
  const Tensor other = at(b[0]);
  EXPECT_THAT(error_of_list(Kind::kAllReduce, {at(a[0]), other, at(a[0])}), shares);
  EXPECT_THAT(error_of_list(Kind::kAllReduce, {at(a[0]), other, at(a[3])}), shares);
  EXPECT_EQ(error_of_list(Kind::kAllReduce, {at(a[0]), other, at(a[4])}), "");
  // One input may have two results, but no result may be the input of another tensor.
  EXPECT_EQ(error_of_list(Kind::kAllReduce, {{at(a[0]), at(b[0])}, {at(a[0]), at(b[4])}}), "");
  EXPECT_THAT(error_of_list(Kind::kAllReduce,
                            {{at(a[0]), at(b[0])}, {at(a[8]), at(b[8])}, {at(b[4]), at(a[3])}}),
              shares);
  // The parts of all ranks are checked for overlap.
  EXPECT_THAT(error_of_list(Kind::kAllGather, {{at(a[0]), at(b[0], 8)},
                                               {at(a[4], 1), at(b[8], 2)},
                                               {at(a[8], 1), at(b[7], 2)}}),
              shares);
  // A broadcast may list a tensor twice on a rank that only reads. In a reduce, only the root
  // writes.
  EXPECT_EQ(error_of_list(Kind::kBroadcast, {at(a[0]), other, at(a[0])}, 1), "");
  EXPECT_THAT(error_of_list(Kind::kBroadcast, {at(a[0]), other, at(a[1])}, 1), shares);
  EXPECT_EQ(error_of_list(Kind::kReduce, {{at(a[0]), at(b[0])}, {at(a[4]), at(b[0])}}, 1), "");
  EXPECT_THAT(error_of_list(Kind::kReduce, {{at(a[0]), at(b[0])}, {at(a[4]), at(b[0])}}, 0),
              HasSubstr("tensors 0 and 1"));
  // A list also fails if one of its tensors is wrong.
  const BufferView longer(&b[4], 5);
  EXPECT_THAT(error_of_list(Kind::kAllReduce, {{at(a[0]), at(b[0])}, {at(a[4]), longer}}),
              HasSubstr("where the other buffer says 5 (tensor 1 of the list)"));
}

TEST(GroupedCalls, NameWhatIsWrongAboutParts) {
  using Kind = OperationKind;
  std::vector<float> a(20), b(20);
  const auto at = [](float& first, std::size_t count) { return BufferView(&first, count); };
  const std::vector<std::size_t> two{2, 3}, four{1, 2, 3, 4}, not_here{0, 3};
  EXPECT_THAT(error_of_call(Kind::kScatter, {{}, b, not_here}),
              HasSubstr("the input has 0 elements"));
  EXPECT_EQ(error_of_call(Kind::kScatter, {{}, at(b[0], 0), not_here}, 1), "");
  EXPECT_EQ(error_of_call(Kind::kScatter, {at(a[0], 3), {}, not_here}), "");
  EXPECT_THAT(error_of_call(Kind::kReduceScatter, {BufferView(), not_here}),
              HasSubstr("the result has 0 elements where the counts say 3"));
  // A rank whose part is empty works out of place if it passes an input, which may be empty.
  EXPECT_EQ(error_of_call(Kind::kAllGather, {{}, at(b[0], 3), not_here}), "");
  EXPECT_EQ(error_of_call(Kind::kAllGather, {std::vector<float>(), at(b[0], 3), not_here}), "");
  EXPECT_THAT(error_of_call(Kind::kAllGather, {at(a[0], 2), at(a[1], 5), two}),
              HasSubstr("overlap"));
  EXPECT_THAT(error_of_call(Kind::kAllToAll, {at(a[0], 3), at(a[2], 4), four}),
              HasSubstr("overlap"));
  EXPECT_EQ(error_of_call(Kind::kAllToAll, {at(a[0], 3), at(a[3], 4), four}), "");
}

}  // namespace
}  // namespace kolo
