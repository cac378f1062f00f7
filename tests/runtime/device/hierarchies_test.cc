// Operations on device memory between nodes: collectives of each node's ranks, with messages
// between nodes.

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "tests/runtime/device/counted_job.h"

namespace kolo {
namespace {

using test::by_hierarchies;
using test::CountedJob;

TEST(Hierarchies, NeverTakeCollectivesOfAllRanks) {
  for (const std::vector<int>& nodes : {std::vector<int>{2, 2}, {1, 1, 1}, {3, 3, 3}}) {
    CountedJob counted(nodes, by_hierarchies());
    test::run_all(counted, [&](const std::string& name) {
      EXPECT_EQ(counted.calls(), 0U) << name;
      EXPECT_GT(counted.calls_in_node(), 0U) << name;
    });
  }
}

TEST(Hierarchies, SumForAllInABucket) {
  CountedJob counted({2, 2}, by_hierarchies());
  for (const bool in_place : {false, true}) {
    const std::vector<float> input(40, 1);
    std::vector<std::vector<float>> sums(4, input);
    counted.run([&](const OperationCalls& calls, int rank) {
      const BufferView mine = test::view(sums[static_cast<std::size_t>(rank)]);
      const std::string name = in_place ? "in place" : "out of place";
      return in_place ? calls.all_reduce(name, mine, ReduceOp::kSum)
                      : calls.all_reduce(name, input.data(), mine, ReduceOp::kSum);
    });
    EXPECT_EQ(sums[0], std::vector<float>(40, 4));
    EXPECT_EQ(counted.calls(), 0U);
    EXPECT_GT(counted.calls_in_node(), 0U);
  }
}

TEST(Hierarchies, ScaleSums) {
  CountedJob counted({2, 2}, by_hierarchies());
  const Reduction scaled{ReduceOp::kSum, {.before = 0.5, .after = 3}};
  std::vector<std::vector<float>> in(4, std::vector<float>(8, 1)), out(4, std::vector<float>(8));
  const auto sum = [&](OperationKind kind) {
    counted.run([&](const OperationCalls& calls, int rank) {
      const auto me = static_cast<std::size_t>(rank);
      BufferView result = test::view(out[me]);
      if (kind == OperationKind::kAllReduce) {
        return calls.all_reduce("for all", in[me].data(), result, scaled);
      }
      if (kind == OperationKind::kReduce) {
        return calls.reduce("for one", in[me].data(), result, 3, scaled);
      }
      result.count = 2;
      return calls.reduce_scatter("for each", in[me].data(), result, scaled, {});
    });
    EXPECT_EQ(counted.calls(), 0U);
    EXPECT_GT(counted.calls_in_node(), 0U);
    return out[3];
  };
  EXPECT_EQ(sum(OperationKind::kReduceScatter), (std::vector<float>{6, 6, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(sum(OperationKind::kReduce), std::vector<float>(8, 6));
  EXPECT_EQ(sum(OperationKind::kAllReduce), std::vector<float>(8, 6));
}

TEST(Hierarchies, TakeOneCallInTheNodeForSeveralTensors) {
  CountedJob counted({2, 2}, by_hierarchies());
  std::vector<std::vector<float>> in(4, std::vector<float>(6, 1)), out(4, std::vector<float>(24));
  for (const std::size_t tensors : {1U, 3U}) {
    counted.run([&](const OperationCalls& calls, int rank) {
      const auto me = static_cast<std::size_t>(rank);
      const std::size_t count = 6 / tensors;
      std::vector<TensorBuffers> each;
      for (std::size_t i = 0; i < tensors; ++i) {
        each.push_back({.input = in[me].data() + i * count,
                        .result = out[me].data() + 4 * i * count,
                        .count = count});
      }
      return calls.grouped(OperationKind::kAllGather, std::to_string(tensors),
                           {.dtype = DType::kFloat32, .each = each});
    });
    EXPECT_EQ(counted.calls_in_node(), 2U) << "one for each node";
    EXPECT_EQ(out[3], std::vector<float>(24, 1));
    out.assign(4, std::vector<float>(24));
  }
}

}  // namespace
}  // namespace kolo
