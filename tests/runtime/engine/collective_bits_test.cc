// Sums whose bits depend on their order are the same by every algorithm for goals.

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
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

struct SumCase {
  std::vector<int> nodes;
  DType dtype = DType::kFloat32;
  std::size_t count = 0;  ///< Elements of each rank's contribution.
  bool is_scattered = false;
};

using Bytes = std::vector<std::byte>;

/// Numbers of many magnitudes, whose sums round differently in every order.
Bytes contribution(const SumCase& what, int rank) {
  std::mt19937 random(static_cast<std::uint32_t>(rank) + 1);
  Bytes bytes(what.count * size_of(what.dtype));
  for (std::size_t i = 0; i < what.count; ++i) {
    const auto mantissa = static_cast<float>(random() % 65536 + 1);
    const float value = mantissa * static_cast<float>(1U << (random() % 16)) * 1e-5F;
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    const auto upper = static_cast<std::uint16_t>(bits >> 16);  // A bfloat16.
    if (what.dtype == DType::kBFloat16) {
      std::memcpy(bytes.data() + 2 * i, &upper, sizeof(upper));
    } else {
      std::memcpy(bytes.data() + 4 * i, &bits, sizeof(bits));
    }
  }
  return bytes;
}

/// The results of all ranks, one after the other.
Bytes results(const SumCase& what, const std::string& algorithm, std::uint64_t seed) {
  EngineJob job(ProcessGrid::with_node_sizes(what.nodes), {.collective_algorithm = algorithm},
                seed);
  const auto ranks = static_cast<std::size_t>(job.world_size());
  const std::size_t result_count = what.is_scattered ? what.count / ranks : what.count;
  std::vector<Bytes> inputs, outputs(ranks, Bytes(result_count * size_of(what.dtype)));
  std::vector<std::shared_ptr<Operation>> operations;
  for (int rank = 0; rank < job.world_size(); ++rank) inputs.push_back(contribution(what, rank));
  for (int rank = 0; rank < job.world_size(); ++rank) {
    OperationPool pool;
    const OperationCalls calls(pool, rank, job.world_size());
    const auto row = static_cast<std::size_t>(rank);
    const BufferView result{outputs[row].data(), result_count, what.dtype};
    operations.push_back(job.submit(
        rank, what.is_scattered
                  ? *calls.reduce_scatter("sum", inputs[row].data(), result, ReduceOp::kSum, {})
                  : *calls.reduce("sum", inputs[row].data(), result, 1, ReduceOp::kSum)));
  }
  job.finish(operations);
  Bytes all;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    EXPECT_EQ(error_of(*operations[rank]), "");
    if (what.is_scattered || rank == 1) {
      all.insert(all.end(), outputs[rank].begin(), outputs[rank].end());
    }
  }
  return all;
}

TEST(CollectiveBits, AreTheSameByEveryAlgorithm) {
  for (const std::vector<int>& nodes :
       std::vector<std::vector<int>>{{1, 1, 1, 1}, {2, 2}, {1, 3, 2}}) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      for (const std::size_t count :
           {std::size_t{120}, std::size_t{test::kSanitized ? 24'000 : 240'000}}) {
        for (const bool is_scattered : {false, true}) {
          const SumCase what{
              .nodes = nodes, .dtype = dtype, .count = count, .is_scattered = is_scattered};
          const Bytes reference = results(what, "direct", 1);
          for (const std::string& algorithm : goal_algorithm_texts()) {
            EXPECT_EQ(results(what, algorithm, 2) == reference, true)
                << algorithm << " " << to_string(dtype) << " " << count << " on " << nodes.size()
                << " nodes" << (is_scattered ? " scattered" : "");
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace kolo
