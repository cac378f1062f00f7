// An operation that needs data of a joined rank fails with the same error on all ranks.

#include <gmock/gmock.h>

#include <chrono>

#include "tests/runtime/join/joined_job.h"
#include "tests/support/node_shapes.h"

namespace kolo::joined {
namespace {

using test::error_of;
using ::testing::HasSubstr;

constexpr std::size_t kCount = 12;

struct DeclinedCase {
  const char* text;  ///< Description in the error.
  const char* why;
  OperationKind kind;
  bool is_to_last = false;  ///< Whether the last rank, which has joined, is the root.
  bool is_in_place = false;
  ReduceOp op = ReduceOp::kSum;
  Scales scales = {};

  /// Out of place, the first half of `data` is the result.
  Operation make(int ranks, std::vector<float>& data) const {
    const float* const input = is_in_place ? nullptr : data.data() + data.size() / 2;
    return {.kind = kind,
            .name = "x",
            .tensors = {{.input = input, .result = data.data(), .count = kCount}},
            .out_of_place = !is_in_place,
            .op = op,
            .scales = scales,
            .root = is_to_last ? ranks - 1 : 0};
  }
};

const DeclinedCase kCases[] = {
    {"'x': all_gather float32 [12] each", "it has nothing to contribute",
     OperationKind::kAllGather},
    {"'x': gather float32 [12] each to rank 0", "it has nothing to contribute",
     OperationKind::kGather},
    {"'x': all_to_all float32 [12] each", "it has nothing to contribute", OperationKind::kAllToAll},
    {"'x': broadcast float32 [12] from rank", "it is the root", OperationKind::kBroadcast, true,
     true},
    {"'x': scatter float32 [12] each from rank", "it is the root", OperationKind::kScatter, true},
    {"'x': reduce float32 [12] sum to rank", "it is the root", OperationKind::kReduce, true},
    {"'x': all_reduce float32 [12] prod scaled by 2 before",
     "no element leaves a result alone when it is scaled",
     OperationKind::kAllReduce,
     false,
     true,
     ReduceOp::kProd,
     {.before = 2}},
};

/// All ranks except the last use the operation after the last one has joined. If its name is known,
/// it may be eager, and end on some ranks before they learn of the join.
void decline(const std::vector<int>& nodes, const DeclinedCase& what, bool is_known,
             unsigned seed) {
  EngineJob job(ProcessGrid::with_node_sizes(nodes), options(), seed);
  const int ranks = job.world_size();
  std::vector<std::vector<float>> data(static_cast<std::size_t>(ranks));
  const auto submit = [&](int rank) {
    auto& mine = data[static_cast<std::size_t>(rank)];
    mine.resize(2 * kCount * static_cast<std::size_t>(ranks), 1.0f);
    return job.submit(rank, what.make(ranks, mine));
  };
  std::vector<std::shared_ptr<Operation>> operations;
  if (is_known) {
    for (int rank = 0; rank < ranks; ++rank) operations.push_back(submit(rank));
    job.finish(operations);
    for (const auto& operation : operations) ASSERT_EQ(error_of(*operation), "");
    operations.clear();
  }
  std::vector<std::shared_ptr<JoinTicket>> tickets{join(job, ranks - 1)};
  if (seed % 2 == 0) job.poll(300);
  for (int rank = 0; rank + 1 < ranks; ++rank) operations.push_back(submit(rank));
  job.finish(operations);
  const std::string text =
      "rank " + std::to_string(ranks - 1) + " has joined and takes no part in " + what.text;
  for (const auto& operation : operations) {
    const std::string error = error_of(*operation);
    if (is_known && error.empty()) continue;
    EXPECT_THAT(error, HasSubstr(text));
    EXPECT_THAT(error, HasSubstr(what.why));
  }
  if (is_known) job.poll(1000);
  ASSERT_FALSE(job.engine(0).failure()) << job.engine(0).failure()->to_string();
  // All ranks continue, also with this name.
  std::vector<std::vector<float>> sums(static_cast<std::size_t>(ranks), {1, 2});
  for (const char* name : {"y", "x"}) {
    operations.clear();
    for (int rank = 0; rank + 1 < ranks; ++rank) {
      operations.push_back(
          job.submit(rank, test::all_reduce(name, sums[static_cast<std::size_t>(rank)])));
    }
    job.finish(operations);
    for (const auto& operation : operations) EXPECT_EQ(error_of(*operation), "");
  }
  for (int rank = 0; rank + 1 < ranks; ++rank) tickets.push_back(join(job, rank));
  job.run_until([&] {
    return std::ranges::all_of(tickets, [](const auto& ticket) { return ticket->done(); });
  });
  for (const auto& ticket : tickets) EXPECT_EQ(outcome(*ticket), outcome(*tickets[0]));
  operations.clear();
  for (int rank = 0; rank < ranks; ++rank) operations.push_back(submit(rank));
  job.finish(operations);
  for (const auto& operation : operations) EXPECT_EQ(error_of(*operation), "");
  EXPECT_EQ(job.close(), "");
}

TEST(Declined, IsWhatNeedsDataOfTheRank) {
  for (const std::vector<int>& nodes : std::vector<std::vector<int>>{{2}, {1, 1}, {2, 1}}) {
    for (const DeclinedCase& what : kCases) {
      for (const bool is_known : {false, true}) {
        for (unsigned seed = 0; seed < seeds(4); ++seed) {
          SCOPED_TRACE(test::shape_text(nodes) + ", " + what.text +
                       (is_known ? ", known" : ", new") + ", seed " + std::to_string(seed));
          decline(nodes, what, is_known, seed);
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(Declined, AreClosingAndNewGradientSets) {
  for (unsigned seed = 0; seed < 10; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    EngineJob job(ProcessGrid::with_node_sizes({2, 1}), options(), seed);
    std::vector<std::shared_ptr<JoinTicket>> tickets{join(job, 1)};
    std::vector<std::shared_ptr<Operation>> ends;
    std::vector<std::shared_ptr<GradientSetState>> sets;
    const auto make_set = [](std::string name) {
      return std::make_shared<GradientSetState>(
          std::move(name), std::vector<GradientSpec>{{.name = "g", .shape = {10}}},
          GradientOptions{});
    };
    for (const int rank : {0, 2}) {
      sets.push_back(make_set("model"));
      job.engine(rank).submit(sets.back());
      ends.push_back(job.submit(rank, {.kind = OperationKind::kClose}));
    }
    job.finish(ends);
    job.run_until_registered(sets);
    for (const auto& end : ends) {
      EXPECT_THAT(error_of(*end), HasSubstr("rank 1 has joined and takes no part in the end of the "
                                            "job: all ranks must join first"));
    }
    for (const auto& set : sets) {
      try {
        set->registration().wait(std::chrono::milliseconds(1));
        FAIL() << "it was registered";
      } catch (const KoloError& e) {
        EXPECT_THAT(e.what(), HasSubstr("takes no part in gradient set 'model'"));
      }
    }
    for (const int rank : {2, 0}) {
      tickets.push_back(join(job, rank));
      job.poll(300);
    }
    expect_all_joined(job, tickets, "0");
    sets.clear();
    for (int rank = 0; rank < 3; ++rank) {
      sets.push_back(make_set("model"));
      job.engine(rank).submit(sets.back());
    }
    job.run_until_registered(sets);
    for (const auto& set : sets) set->registration().wait(std::chrono::milliseconds(1));
    EXPECT_EQ(job.close(), "");
  }
}

}  // namespace
}  // namespace kolo::joined
