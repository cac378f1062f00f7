// A grouped operation whose tensors have parts of different sizes gives each of them what the
// operation on that tensor alone gives it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <numeric>
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

/// Elements of each rank's part of a tensor, or of each pair's.
using PartSizes = std::vector<std::size_t>;

struct PartedCollective {
  std::string name;
  OperationKind kind;
  bool takes_all = false;  ///< The input holds a part for each rank.
  bool gives_all = false;  ///< So does the result.
};

std::vector<PartedCollective> parted_collectives() {
  return {{.name = "reduce_scatter", .kind = OperationKind::kReduceScatter, .takes_all = true},
          {.name = "all_gather", .kind = OperationKind::kAllGather, .gives_all = true},
          {.name = "gather", .kind = OperationKind::kGather, .gives_all = true},
          {.name = "scatter", .kind = OperationKind::kScatter, .takes_all = true},
          {.name = "all_to_all",
           .kind = OperationKind::kAllToAll,
           .takes_all = true,
           .gives_all = true}};
}

/// The buffers of one tensor at one rank, of floats. Elements are small integers, so that sums are
/// exact.
struct PartBuffers {
  std::vector<float> input, result;
};

class GroupedParts : public testing::TestWithParam<std::tuple<PartedCollective, MemoryKind>> {
 protected:
  static const PartedCollective& collective() { return std::get<PartedCollective>(GetParam()); }

  /// Elements that `rank` contributes, or receives.
  static std::size_t elements(const PartSizes& parts, std::size_t rank, std::size_t ranks,
                              bool receives) {
    const bool all = receives ? collective().gives_all : collective().takes_all;
    if (collective().kind != OperationKind::kAllToAll) {
      return all ? std::accumulate(parts.begin(), parts.end(), std::size_t{0}) : parts[rank];
    }
    std::size_t sum = 0;
    for (std::size_t peer = 0; peer < ranks; ++peer) {
      sum += receives ? parts[peer * ranks + rank] : parts[rank * ranks + peer];
    }
    return sum;
  }

  /// The root, the last rank, has one buffer then; the others of a gather or scatter have theirs.
  static bool has_input_in_place(std::size_t rank, std::size_t ranks) {
    const bool is_root = rank + 1 == ranks;
    return collective().kind == OperationKind::kScatter ||
           (collective().kind == OperationKind::kGather && !is_root);
  }

  static PartBuffers draw(const PartSizes& parts, std::size_t rank, std::size_t ranks,
                          std::size_t floats, bool in_place) {
    const std::size_t input = elements(parts, rank, ranks, false) * floats;
    const std::size_t result = elements(parts, rank, ranks, true) * floats;
    PartBuffers buffers;
    const bool is_root = rank + 1 == ranks;
    const bool scatters = collective().kind == OperationKind::kScatter;
    const bool has_input = !in_place || has_input_in_place(rank, ranks);
    const bool has_result = !(in_place && scatters && is_root);
    if (has_result) buffers.result.resize(has_input ? result : std::max(input, result));
    if (has_input) buffers.input.resize(input);
    std::vector<float>& contribution = has_input ? buffers.input : buffers.result;
    for (std::size_t i = 0; i < contribution.size(); ++i) {
      contribution[i] = static_cast<float>((i + parts.back()) % 13 + 20 * rank);
    }
    return buffers;
  }

  static std::shared_ptr<Operation> alone(const OperationCalls& calls, const std::string& name,
                                          PartBuffers& buffers, const PartSizes& parts, DType dtype,
                                          bool in_place, int root) {
    const void* const input = buffers.input.data();
    const std::size_t floats = size_of(dtype) / sizeof(float);
    const std::size_t part = parts[static_cast<std::size_t>(calls.rank())];
    const BufferView result{buffers.result.data(), buffers.result.size() / floats, dtype};
    switch (collective().kind) {
      case OperationKind::kReduceScatter:
        return calls.reduce_scatter(name, input, result, ReduceOp::kSum, parts);
      case OperationKind::kAllGather:
        return calls.all_gather(name, in_place ? nullptr : non_null(input), result, parts);
      case OperationKind::kGather:
        return calls.gather(name, {buffers.input.data(), part, dtype}, buffers.result.data(), root,
                            parts);
      case OperationKind::kScatter:
        return calls.scatter(name, input, {result.data, part, dtype}, root, parts);
      default:
        return calls.all_to_all(name, in_place ? nullptr : non_null(input), result, parts);
    }
  }

  static const void* non_null(const void* data) {
    static const char kAnything = 0;
    return data == nullptr ? &kAnything : data;
  }

  /// Runs the operation on tensors together, twice, and on each alone. `tensors` gives the parts
  /// for so many ranks or pairs.
  void expect_same(const std::vector<int>& nodes, const std::vector<PartSizes>& tensors,
                   DType dtype, bool in_place) {
    EngineJob job(ProcessGrid::with_node_sizes(nodes),
                  test::by_hierarchies({.verify_schedules = true}), 3,
                  test::devices_for(std::get<MemoryKind>(GetParam())));
    const auto ranks = static_cast<std::size_t>(job.world_size());
    const std::size_t floats = size_of(dtype) / sizeof(float);
    const int root = job.world_size() - 1;
    std::vector<std::vector<PartBuffers>> together(ranks), apart(ranks);
    for (int use = 0; use < 2; ++use) {
      std::vector<std::shared_ptr<Operation>> operations;
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        OperationPool pool;
        const OperationCalls calls(pool, static_cast<int>(rank), job.world_size());
        together[rank].clear();
        for (const PartSizes& parts : tensors) {
          together[rank].push_back(draw(parts, rank, ranks, floats, in_place));
        }
        apart[rank] = together[rank];
        std::vector<TensorBuffers> buffers;
        for (std::size_t t = 0; t < tensors.size(); ++t) {
          PartBuffers& mine = together[rank][t];
          const bool has_input = !in_place || has_input_in_place(rank, ranks);
          buffers.push_back({.input = has_input ? non_null(mine.input.data()) : nullptr,
                             .result = mine.result.data(),
                             .counts = tensors[t]});
          operations.push_back(job.submit(
              static_cast<int>(rank), *alone(calls, "tensor " + std::to_string(t), apart[rank][t],
                                             tensors[t], dtype, in_place, root)));
        }
        operations.push_back(job.submit(
            static_cast<int>(rank),
            *calls.grouped(collective().kind, "all", {.dtype = dtype, .each = buffers}, root)));
      }
      job.finish(operations);
      for (const auto& operation : operations) ASSERT_EQ(error_of(*operation), "");
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        for (std::size_t t = 0; t < tensors.size(); ++t) {
          EXPECT_EQ(together[rank][t].result, apart[rank][t].result)
              << "rank " << rank << " tensor " << t << " use " << use;
          EXPECT_EQ(together[rank][t].input, apart[rank][t].input);
        }
      }
    }
  }

  static std::size_t parts_for(std::size_t ranks) {
    return collective().kind == OperationKind::kAllToAll ? ranks * ranks : ranks;
  }
};

TEST_P(GroupedParts, GiveEachTensorWhatItGetsAlone) {
  for (const std::vector<int>& nodes :
       std::vector<std::vector<int>>{{1}, {2}, {3}, {1, 1}, {2, 1}, {2, 2}}) {
    const auto ranks = static_cast<std::size_t>(std::accumulate(nodes.begin(), nodes.end(), 0));
    const std::size_t parts = parts_for(ranks);
    const PartSizes even(parts, 4), nothing(parts, 0);
    for (const bool in_place : {false, true}) {
      PartSizes uneven(parts), sparse(parts), large(parts);
      for (std::size_t i = 0; i < parts; ++i) {
        // In place those of pairs are as many both ways.
        const bool is_symmetrical = in_place && collective().kind == OperationKind::kAllToAll;
        const std::size_t number = is_symmetrical ? i / ranks + i % ranks : i;
        uneven[i] = (5 * number + 3) % 7;
        sparse[i] = i + 1 == parts ? 1 : 0;
        large[i] = 200 * number + 17;
      }
      expect_same(nodes, {uneven, even, nothing, sparse}, DType::kFloat32, in_place);
      expect_same(nodes, {sparse}, DType::kFloat32, in_place);
      expect_same(nodes, {even, even}, DType::kFloat32, in_place);
      expect_same(nodes, {nothing, nothing}, DType::kFloat32, in_place);
      expect_same(nodes, {large, uneven, large}, DType::kComplex64, in_place);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, GroupedParts,
                         testing::Combine(testing::ValuesIn(parted_collectives()),
                                          testing::Values(MemoryKind::kHost, MemoryKind::kDevice)),
                         [](const auto& each) {
                           return std::get<0>(each.param).name + "_" +
                                  std::string(to_string(std::get<MemoryKind>(each.param)));
                         });

/// Both ranks gather tensors of these parts; returns the error of both.
std::string error_of_gathers(EngineJob& job, const std::string& name,
                             const std::vector<std::vector<PartSizes>>& parts) {
  std::vector<float> input(100), result(200);
  std::vector<std::shared_ptr<Operation>> operations;
  for (int rank = 0; rank < 2; ++rank) {
    OperationPool pool;
    std::vector<TensorBuffers> tensors;
    std::size_t first = 0;
    for (const PartSizes& each : parts[static_cast<std::size_t>(rank)]) {
      tensors.push_back(
          {.input = input.data() + first, .result = result.data() + 2 * first, .counts = each});
      first += each[0] + each[1];
    }
    operations.push_back(
        job.submit(rank, *OperationCalls(pool, rank, 2)
                              .grouped(OperationKind::kAllGather, name,
                                       {.dtype = DType::kFloat32, .each = tensors})));
  }
  job.finish(operations);
  EXPECT_EQ(error_of(*operations[1]), error_of(*operations[0]));
  return error_of(*operations[0]);
}

TEST(GroupedPartsMismatch, IsTheSameErrorEverywhereAndHarmsNothing) {
  EngineJob job(ProcessGrid::with_node_sizes({1, 1}), {}, 5);
  const std::vector<PartSizes> usual{{3, 4}, {5, 5}};
  const struct {
    std::string what;
    std::vector<PartSizes> odd;
    std::string odd_text;
  } pairs[] = {
      {"one part", {{3, 4}, {5, 6}}, "all_gather float32 [3, 4] + [5, 6] out of place"},
      {"order", {{5, 5}, {3, 4}}, "all_gather float32 [5, 5] + [3, 4] out of place"},
      {"even", {{3, 3}, {5, 5}}, "all_gather float32 [3] + [5] each out of place"},
      {"number", {{3, 4}}, "all_gather float32 [3, 4] out of place"},
      {"many", std::vector<PartSizes>(9, {1, 2}), "float32 in 9 tensors of 2 parts (hash"}};
  for (const auto& pair : pairs) {
    EXPECT_THAT(error_of_gathers(job, pair.what, {usual, pair.odd}),
                testing::AllOf(HasSubstr("all_gather float32 [3, 4] + [5, 5] out of place"),
                               HasSubstr(pair.odd_text)));
    EXPECT_EQ(error_of_gathers(job, pair.what, {usual, usual}), "");
  }
}

TEST(GroupedPartsCalls, NameWhatIsWrong) {
  OperationPool pool;
  const OperationCalls calls(pool, 0, 2);
  std::vector<float> a(20), b(20);
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
  const PartSizes two{2, 3}, three{1, 2, 3}, four{1, 2, 3, 4}, not_here{0, 3};
  EXPECT_THAT(error(Kind::kAllGather, {{a.data(), b.data(), 0, three}}),
              HasSubstr("'x': there are 3 counts for 2 ranks"));
  EXPECT_THAT(error(Kind::kAllToAll, {{a.data(), b.data(), 0, two}}),
              HasSubstr("there are 2 counts for 4 pairs of ranks"));
  EXPECT_THAT(error(Kind::kAllReduce, {{a.data(), b.data(), 0, two}}),
              HasSubstr("knows no parts, so it takes no counts"));
  EXPECT_THAT(error(Kind::kScatter, {{nullptr, b.data(), 0, not_here}}), HasSubstr("has no input"));
  EXPECT_EQ(error(Kind::kScatter, {{nullptr, b.data(), 0, not_here}}, 1), "");
  EXPECT_EQ(error(Kind::kScatter, {{a.data(), nullptr, 0, not_here}}), "");
  EXPECT_THAT(error(Kind::kReduceScatter, {{nullptr, nullptr, 0, not_here}}),
              HasSubstr("has no result"));
  // A rank whose parts are all empty works out of place if it names an input.
  EXPECT_EQ(error(Kind::kAllGather, {{a.data(), b.data(), 0, not_here}}), "");
  EXPECT_THAT(error(Kind::kAllGather, {{a.data(), a.data() + 1, 0, two}}), HasSubstr("overlap"));
  EXPECT_THAT(error(Kind::kAllToAll, {{a.data(), a.data() + 2, 0, four}}), HasSubstr("overlap"));
  EXPECT_EQ(error(Kind::kAllToAll, {{a.data(), a.data() + 3, 0, four}}), "");
}

}  // namespace
}  // namespace kolo
