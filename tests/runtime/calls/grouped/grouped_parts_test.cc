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
#include "tests/support/calls/sized_tensor.h"
#include "tests/support/engine_job.h"

namespace kolo {
namespace {

using test::Caller;
using test::EngineJob;
using test::error_of;
using testing::HasSubstr;

/// Elements of each rank's part of a tensor, or of each pair's.
using PartSizes = std::vector<std::size_t>;

struct PartedCollective {
  std::string name;
  OperationKind kind;
};

std::vector<PartedCollective> parted_collectives() {
  using Kind = OperationKind;
  return {{"reduce_scatter", Kind::kReduceScatter},
          {"all_gather", Kind::kAllGather},
          {"gather", Kind::kGather},
          {"scatter", Kind::kScatter},
          {"all_to_all", Kind::kAllToAll}};
}

/// The buffers of one tensor at one rank, of floats. Elements are small integers, so that sums are
/// exact.
struct PartBuffers {
  std::vector<float> input, result;
};

class GroupedParts : public testing::TestWithParam<std::tuple<PartedCollective, MemoryKind>> {
 protected:
  static const PartedCollective& collective() { return std::get<PartedCollective>(GetParam()); }

  static Caller caller(std::size_t rank, std::size_t ranks) {
    return {collective().kind, static_cast<int>(rank), static_cast<int>(ranks)};
  }

  /// The root, the last rank, has one buffer then; the others of a gather or scatter have theirs.
  static bool has_input_in_place(std::size_t rank, std::size_t ranks) {
    const bool is_root = rank + 1 == ranks;
    return collective().kind == OperationKind::kScatter ||
           (collective().kind == OperationKind::kGather && !is_root);
  }

  static PartBuffers draw(const PartSizes& parts, std::size_t rank, std::size_t ranks,
                          std::size_t floats, bool in_place) {
    const std::size_t input = caller(rank, ranks).elements(0, parts, false) * floats;
    const std::size_t result = caller(rank, ranks).elements(0, parts, true) * floats;
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
        const auto tensor = [&](std::size_t t, PartBuffers& mine) {
          return caller(rank, ranks)
              .tensor(0, tensors[t], mine.input.data(), mine.result.data(), dtype, in_place);
        };
        std::vector<Tensor> all;
        for (std::size_t t = 0; t < tensors.size(); ++t) {
          all.push_back(tensor(t, together[rank][t]));
          operations.push_back(job.submit(
              static_cast<int>(rank), *calls.make(collective().kind, "tensor " + std::to_string(t),
                                                  tensor(t, apart[rank][t]), root)));
        }
        operations.push_back(
            job.submit(static_cast<int>(rank), *calls.make(collective().kind, "all", all, root)));
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
    std::vector<Tensor> tensors;
    std::size_t first = 0;
    const Caller caller{OperationKind::kAllGather, rank, 2};
    for (const PartSizes& each : parts[static_cast<std::size_t>(rank)]) {
      tensors.push_back(
          caller.tensor(0, each, input.data() + first, result.data() + 2 * first, DType::kFloat32));
      first += each[0] + each[1];
    }
    operations.push_back(
        job.submit(rank, *OperationCalls(pool, rank, 2).make(caller.kind, name, tensors)));
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
  using Kind = OperationKind;
  OperationPool pool;
  const OperationCalls calls(pool, 0, 2);
  std::vector<float> a(20), b(20);
  const auto error = [&](Kind kind, const Tensors& tensors, int root = 0) -> std::string {
    try {
      calls.make(kind, "x", tensors, root);
      return {};
    } catch (const UsageError& e) {
      return e.what();
    }
  };
  const auto at = [](float& first, std::size_t count) { return BufferView(&first, count); };
  const PartSizes two{2, 3}, four{1, 2, 3, 4}, not_here{0, 3};
  EXPECT_THAT(error(Kind::kScatter, {{}, b, not_here}), HasSubstr("the input has 0 elements"));
  EXPECT_EQ(error(Kind::kScatter, {{}, at(b[0], 0), not_here}, 1), "");
  EXPECT_EQ(error(Kind::kScatter, {at(a[0], 3), {}, not_here}), "");
  EXPECT_THAT(error(Kind::kReduceScatter, {BufferView(), not_here}),
              HasSubstr("the result has 0 elements where the counts say 3"));
  // A rank whose part is empty works out of place if it names an input, which may be empty.
  EXPECT_EQ(error(Kind::kAllGather, {{}, at(b[0], 3), not_here}), "");
  EXPECT_EQ(error(Kind::kAllGather, {std::vector<float>(), at(b[0], 3), not_here}), "");
  EXPECT_THAT(error(Kind::kAllGather, {at(a[0], 2), at(a[1], 5), two}), HasSubstr("overlap"));
  EXPECT_THAT(error(Kind::kAllToAll, {at(a[0], 3), at(a[2], 4), four}), HasSubstr("overlap"));
  EXPECT_EQ(error(Kind::kAllToAll, {at(a[0], 3), at(a[3], 4), four}), "");
}

}  // namespace
}  // namespace kolo
