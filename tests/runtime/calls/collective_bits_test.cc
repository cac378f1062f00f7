// Sums whose bits depend on the order of addition are equal for every algorithm.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "comm/algorithms/all_reduce/all_reduce.h"
#include "comm/algorithms/registry.h"
#include "runtime/calls/operation_calls.h"
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
  std::optional<DType> wire = {};
};

using Bytes = std::vector<std::byte>;

/// Returns numbers of many magnitudes, whose sums round differently in every order.
Bytes contribution(const SumCase& what, int rank) {
  std::mt19937 random(static_cast<std::uint32_t>(rank) + 1);
  Bytes bytes(what.count * size_of(what.dtype));
  for (std::size_t i = 0; i < what.count; ++i) {
    const auto mantissa = static_cast<float>(random() % 65536 + 1);
    const float value = mantissa * static_cast<float>(1U << (random() % 16)) * 1e-5F;
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    const auto upper = static_cast<std::uint16_t>(bits >> 16);  // a bfloat16
    if (what.dtype == DType::kBFloat16) {
      std::memcpy(bytes.data() + 2 * i, &upper, sizeof(upper));
    } else {
      std::memcpy(bytes.data() + 4 * i, &bits, sizeof(bits));
    }
  }
  return bytes;
}

struct Reduced {
  Bytes results;  ///< Results of all ranks, one after the other.
  std::uint64_t network_bytes = 0;
};

Reduced reduced_by(const SumCase& what, const std::string& algorithm, std::uint64_t seed) {
  EngineJob job(ProcessGrid::with_node_sizes(what.nodes), {.algorithm = algorithm}, seed);
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
    const ConstBuffer input{inputs[row].data(), what.count, what.dtype};
    const OperationKind kind =
        what.is_scattered ? OperationKind::kReduceScatter : OperationKind::kReduce;
    operations.push_back(
        job.submit(rank, *calls.make(kind, "sum", {input, result}, what.is_scattered ? 0 : 1,
                                     {ReduceOp::kSum, {}, what.wire})));
  }
  job.finish(operations);
  Reduced all;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    EXPECT_EQ(error_of(*operations[rank]), "");
    all.network_bytes += job.engine(static_cast<int>(rank)).network_bytes_sent();
    if (what.is_scattered || rank == 1) {
      all.results.insert(all.results.end(), outputs[rank].begin(), outputs[rank].end());
    }
  }
  return all;
}

/// Returns the sum over all ranks of `count` elements. All are zero except the 16 at `offset`.
std::vector<float> sum_of_16(const std::vector<int>& nodes, const Options& options,
                             std::size_t count, std::size_t offset, std::uint64_t seed) {
  EngineJob job(ProcessGrid::with_node_sizes(nodes), options, seed);
  const auto ranks = static_cast<std::size_t>(job.world_size());
  std::vector<std::vector<float>> data(ranks, std::vector<float>(count));
  std::vector<std::shared_ptr<Operation>> operations;
  for (int rank = 0; rank < job.world_size(); ++rank) {
    auto& mine = data[static_cast<std::size_t>(rank)];
    const Bytes elements = contribution({.nodes = nodes, .count = 16}, rank);
    std::memcpy(mine.data() + offset, elements.data(), elements.size());
    operations.push_back(
        job.submit(rank, {.kind = OperationKind::kAllReduce,
                          .name = "sum",
                          .tensors = test::in_place({mine.data(), count, DType::kFloat32})}));
  }
  job.finish(operations);
  for (const auto& operation : operations) EXPECT_EQ(error_of(*operation), "");
  for (const auto& mine : data) EXPECT_EQ(mine, data.front());
  const auto first = data.front().begin() + static_cast<std::ptrdiff_t>(offset);
  return {first, first + 16};
}

TEST(CollectiveBits, OfAReproducibleJobDependNeitherOnLinksNorOnSizeAndPlace) {
  const auto results = [](const std::vector<int>& nodes, Options options) {
    std::set<std::vector<float>> found;
    std::uint64_t seed = 0;
    for (const char* costs :
         {"", "network_bytes_per_us=60", "network_latency_us=2,network_bytes_per_us=24000"}) {
      options.link_costs = costs;
      for (const std::size_t count : {std::size_t{16}, std::size_t{1000}, std::size_t{40'000}}) {
        for (const std::size_t offset : {std::size_t{0}, (count - 16) / 3, count - 16}) {
          found.insert(sum_of_16(nodes, options, count, offset, ++seed));
        }
      }
    }
    return found.size();
  };
  for (const std::vector<int>& nodes :
       std::vector<std::vector<int>>{{1, 1, 1, 1}, {2, 2}, {3, 1, 2}}) {
    EXPECT_EQ(results(nodes, {.reproducible = true}), 1u);
  }
  EXPECT_GT(results({1, 1, 1, 1}, {.algorithm = "ring"}), 1u) << "these sums tell orders apart";
}

/// Returns "auto" and every algorithm except `direct`, which is the reference.
std::vector<std::string> collective_algorithms() {
  std::vector<std::string> names{"auto"};
  for (const Algorithm* each : all_algorithms().subspan(all_reduces().size())) {
    if (each->name() != "direct" && each->name() != "native") names.emplace_back(each->name());
  }
  return names;
}

TEST(CollectiveBits, AreTheSameByEveryAlgorithm) {
  for (const std::vector<int>& nodes :
       std::vector<std::vector<int>>{{1, 1, 1, 1}, {2, 2}, {1, 3, 2}}) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      for (const std::size_t count :
           {std::size_t{120}, std::size_t{test::kSanitized ? 24'000 : 144'000}}) {
        for (const bool is_scattered : {false, true}) {
          const SumCase what{
              .nodes = nodes, .dtype = dtype, .count = count, .is_scattered = is_scattered};
          const Bytes reference = reduced_by(what, "direct", 1).results;
          for (const std::string& algorithm : collective_algorithms()) {
            EXPECT_EQ(reduced_by(what, algorithm, 2).results == reference, true)
                << algorithm << " " << to_string(dtype) << " " << count << " on " << nodes.size()
                << " nodes" << (is_scattered ? " scattered" : "");
          }
        }
      }
    }
  }
}

/// Returns the result of an all-reduce, which is the parts of all ranks one after the other.
Bytes parts_of_all_reduce(const SumCase& what, const std::string& algorithm) {
  EngineJob job(ProcessGrid::with_node_sizes(what.nodes), {.algorithm = algorithm}, 1);
  std::vector<Bytes> buffers;
  std::vector<std::shared_ptr<Operation>> operations;
  for (int rank = 0; rank < job.world_size(); ++rank) buffers.push_back(contribution(what, rank));
  for (int rank = 0; rank < job.world_size(); ++rank) {
    OperationPool pool;
    const OperationCalls calls(pool, rank, job.world_size());
    operations.push_back(job.submit(
        rank, *calls.make(OperationKind::kAllReduce, "sum",
                          {buffers[static_cast<std::size_t>(rank)].data(), what.count, what.dtype},
                          0, {ReduceOp::kSum, {}, what.wire})));
  }
  job.finish(operations);
  for (const auto& operation : operations) EXPECT_EQ(error_of(*operation), "");
  return buffers[0];
}

// Sums within nodes are rounded to the wire type, and so are the sums over nodes. With one node or
// one rank per node, `direct` has the same bits.
TEST(CollectiveBits, OfACastReduceScatterAreThoseOfAnAllReduce) {
  for (const std::vector<int>& nodes :
       std::vector<std::vector<int>>{{1}, {3}, {1, 1, 1}, {2, 2}, {1, 3, 2}, {2, 2, 2}}) {
    const bool is_flat = nodes.size() == 1 || *std::ranges::max_element(nodes) == 1;
    for (const std::size_t count : {std::size_t{120}, std::size_t{24'000}}) {
      const SumCase what{
          .nodes = nodes, .count = count, .is_scattered = true, .wire = DType::kBFloat16};
      const Bytes expected = parts_of_all_reduce(what, "hierarchical:direct,direct");
      if (is_flat) {
        EXPECT_EQ(parts_of_all_reduce(what, "direct") == expected, true);
      }
      const Reduced cast = reduced_by(what, "auto", 2);
      EXPECT_EQ(cast.results == expected, true) << count << " on " << nodes.size() << " nodes";
      // Each node sends its sums for all other nodes' parts once.
      EXPECT_EQ(cast.network_bytes, (nodes.size() - 1) * count * size_of(DType::kBFloat16));
    }
  }
}

}  // namespace
}  // namespace kolo
