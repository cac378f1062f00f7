#include <gtest/gtest.h>

#include "runtime/calls/operation_calls.h"
#include "tests/support/engine_job.h"

namespace kolo {
namespace {

using test::EngineJob;
using test::error_of;

using Bits = std::vector<std::byte>;

// The bytes of an element are received unchanged, for any type.
class MovedElements : public testing::TestWithParam<MemoryKind> {};

TEST_P(MovedElements, AreOfAnyDType) {
  EngineJob job(ProcessGrid::with_node_sizes({2, 1}), {.verify_schedules = true}, 12,
                test::devices_for(GetParam()));
  for (const DType dtype : kAllDTypes) {
    constexpr std::size_t kEach = 11;
    const std::size_t part = kEach * size_of(dtype);
    struct Rank {
      Bits input, gathered, exchanged, sent, scattered, at_root;
    };
    std::vector<Rank> ranks(3);
    Bits all;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      for (std::size_t i = 0; i < part; ++i) {
        ranks[rank].input.push_back(static_cast<std::byte>(rank * 83 + i * 7));
      }
      all.insert(all.end(), ranks[rank].input.begin(), ranks[rank].input.end());
    }
    std::vector<std::shared_ptr<Operation>> operations;
    for (int rank = 0; rank < 3; ++rank) {
      Rank& mine = ranks[static_cast<std::size_t>(rank)];
      OperationPool pool;
      const OperationCalls calls(pool, rank, 3);
      const std::string name(to_string(dtype));
      mine.gathered.resize(all.size());
      mine.exchanged.resize(all.size());
      mine.scattered.resize(part);
      mine.at_root.resize(all.size());
      mine.sent = rank == 1 ? all : Bits(all.size());
      const auto view = [&](Bits& bytes) {
        return BufferView{bytes.data(), bytes.size() / size_of(dtype), dtype};
      };
      const auto submit = [&](OperationKind kind, const std::string& what, const Tensors& tensors,
                              int root = 0) {
        operations.push_back(job.submit(rank, *calls.make(kind, name + what, tensors, root)));
      };
      using Kind = OperationKind;
      submit(Kind::kAllGather, " gathered", {view(mine.input), view(mine.gathered)});
      submit(Kind::kAllToAll, " exchanged", {view(all), view(mine.exchanged)});
      submit(Kind::kBroadcast, " sent", view(mine.sent), 1);
      submit(Kind::kScatter, " scattered", {view(all), view(mine.scattered)}, 2);
      submit(Kind::kGather, " at root", {view(mine.input), view(mine.at_root)}, 0);
    }
    job.finish(operations);
    for (const auto& operation : operations) ASSERT_EQ(error_of(*operation), "");
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      const Rank& mine = ranks[rank];
      EXPECT_EQ(mine.gathered, all) << to_string(dtype);
      EXPECT_EQ(mine.sent, all) << to_string(dtype);
      EXPECT_EQ(mine.scattered, mine.input) << to_string(dtype);
      EXPECT_EQ(mine.at_root, rank == 0 ? all : Bits(all.size())) << to_string(dtype);
      Bits same;
      for (int from = 0; from < 3; ++from) {
        same.insert(same.end(), mine.input.begin(), mine.input.end());
      }
      EXPECT_EQ(mine.exchanged, same) << to_string(dtype);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Memory, MovedElements,
                         testing::Values(MemoryKind::kHost, MemoryKind::kDevice),
                         [](const auto& each) { return std::string(to_string(each.param)); });

}  // namespace
}  // namespace kolo
