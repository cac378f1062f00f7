// Tests groups of ranks: only their members create them, and they are independent and released.

#include <gmock/gmock.h>

#include <random>

#include "runtime/calls/row_sums/row_reduction.h"
#include "tests/runtime/calls/collective_calls.h"
#include "tests/support/engine_job.h"
#include "tests/support/group_job.h"
#include "tests/support/message_calls.h"

namespace kolo {
namespace {

using test::error_of;
using test::GroupJob;
using test::view;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kFiveRanks = 5;

std::vector<ProcessGrid> grids_of_five() {
  return {ProcessGrid::with_node_sizes({5}), ProcessGrid::with_node_sizes({2, 3}),
          ProcessGrid::with_node_sizes({1, 1, 1, 1, 1}), ProcessGrid({"a", "b", "a", "b", "c"})};
}

std::string error_of(TicketState& ticket) {
  try {
    ticket.wait(std::chrono::milliseconds(1));
    return {};
  } catch (const KoloError& e) {
    return e.what();
  }
}

/// A call that one member has begun.
struct Work {
  std::function<bool()> done;
  std::function<void()> expect_right;  ///< Before: the call is done.
};

/// A call that all members of a group make.
using GroupCall = std::function<Work(GroupEngine& member)>;

int rank_of_job(const GroupEngine& member, int rank) {
  return member.ranks()[static_cast<std::size_t>(rank)];
}

/// Begins a collective. Ranks are numbers in the group, and the last one is the root.
Work begin_collective(GroupEngine& member, const test::CollectiveCall& call, bool is_uneven,
                      bool in_place) {
  struct State {
    test::CollectiveBuffers buffers;
    OperationPool pool;
    std::shared_ptr<Operation> operation;
  };
  const auto ranks = static_cast<int>(member.ranks().size());
  std::vector<std::size_t> counts;
  for (std::size_t i = 0; i < member.ranks().size(); ++i) {
    counts.push_back(is_uneven ? i % 3 * 40 : 50);
  }
  const std::string name = call.name + (is_uneven ? "v" : "") + (in_place ? " in place" : "");
  const auto state = std::make_shared<State>();
  state->buffers = test::buffers_for(call.spec(counts, ranks - 1), member.rank(), in_place);
  const OperationCalls calls(state->pool, member.rank(), ranks);
  state->operation = call.make(calls, name, state->buffers, counts, ranks - 1, in_place);
  member.engine().submit(state->operation);
  return {.done = [state] { return state->operation->ticket->done(); },
          .expect_right =
              [state, name] {
                ASSERT_EQ(error_of(*state->operation), "") << name;
                ASSERT_EQ(state->buffers.result, state->buffers.expected) << name;
              }};
}

/// Begins a sum of rows: each member has one row that no other has, and two with a common index.
Work begin_rows(GroupEngine& member, RowForm exchange) {
  static const Options options{.arena_bytes = GroupJob::kJobArena};
  static const LinkCosts costs;
  constexpr std::size_t kHeight = 7, kWidth = 3, kShared = 5;
  const RowTable table{.height = kHeight, .width = kWidth, .dtype = DType::kFloat32};
  struct State {
    std::vector<float> rows, expected;
    RowSums memory;
    std::shared_ptr<RowReduction> reduction;
  };
  const auto state = std::make_shared<State>();
  state->expected.resize(kHeight * kWidth);
  state->rows.assign(3 * kWidth, static_cast<float>(member.rank() + 1));
  for (std::size_t rank = 0; rank < member.ranks().size(); ++rank) {
    for (std::size_t i = 0; i < kWidth; ++i) {
      state->expected[rank * kWidth + i] += static_cast<float>(rank + 1);
      state->expected[kShared * kWidth + i] += static_cast<float>(2 * (rank + 1));
    }
  }
  const std::vector<std::int64_t> indices{kShared, member.rank(), kShared};
  const TableRows mine{.table = table, .indices = indices, .rows = state->rows.data()};
  state->reduction = std::make_shared<RowReduction>(
      PlanInputs{.rank = member.rank(), .grid = member.grid(), .options = options, .costs = costs},
      exchange == RowForm::kRows ? "rows" : "table", std::span(&mine, 1),
      RowOptions{.result = RowForm::kTable, .exchange = exchange}, std::span(&state->memory, 1));
  member.engine().submit(std::shared_ptr<CompositeOp>(state->reduction));
  return {.done = [state] { return state->reduction->done(); },
          .expect_right =
              [state] {
                ASSERT_EQ(error_of(*state->reduction), "");
                const RowSums sums = std::move(state->reduction->take().front());
                const auto* const values = static_cast<const float*>(sums.rows().data);
                ASSERT_EQ(std::vector<float>(values, values + sums.rows().count), state->expected);
              }};
}

/// Begins messages: each member sends to the next one, and receives from the previous or any.
Work begin_messages(GroupEngine& member, std::size_t count) {
  struct State {
    std::vector<float> out, in, expected;
    std::shared_ptr<test::CalledMessage> sent, received;
  };
  const auto ranks = static_cast<int>(member.ranks().size());
  const int before = (member.rank() + ranks - 1) % ranks;
  const auto values = [&](int rank) {
    return std::vector<float>(count, static_cast<float>(rank_of_job(member, rank)));
  };
  const auto state = std::make_shared<State>();
  state->out = values(member.rank());
  state->in.assign(count, -1);
  state->expected = values(before);
  state->sent = std::make_shared<test::CalledMessage>(Message::Kind::kSend, view(state->out),
                                                      (member.rank() + 1) % ranks, count);
  state->received = std::make_shared<test::CalledMessage>(
      Message::Kind::kReceive, view(state->in), member.rank() % 2 == 0 ? before : kAnyRank, count);
  member.engine().submit(state->sent);
  member.engine().submit(state->received);
  return {.done = [state] { return state->sent->is_over() && state->received->is_over(); },
          .expect_right =
              [state, before] {
                ASSERT_EQ(state->sent->text() + state->received->text(), "");
                ASSERT_EQ(state->received->received.source, before);
                ASSERT_EQ(state->in, state->expected);
              }};
}

/// Returns every collective, with equal and unequal parts, in and out of place; rows; and messages.
std::vector<GroupCall> group_calls() {
  std::vector<GroupCall> calls;
  for (const test::CollectiveCall& call : test::every_collective_call()) {
    for (const bool is_uneven : {false, true}) {
      for (const bool in_place : {false, true}) {
        if (is_uneven && !call.takes_counts) continue;
        calls.push_back([=](GroupEngine& member) {
          return begin_collective(member, call, is_uneven, in_place);
        });
      }
    }
  }
  for (const RowForm exchange : {RowForm::kRows, RowForm::kTable}) {
    calls.push_back([exchange](GroupEngine& member) { return begin_rows(member, exchange); });
  }
  for (const std::size_t count : {std::size_t{50}, std::size_t{5000}}) {
    calls.push_back([count](GroupEngine& member) { return begin_messages(member, count); });
  }
  return calls;
}

/// Makes all members of these groups make every `stride`-th call from call `first` on, twice, in an
/// order that the seed determines.
void expect_groups_work(GroupJob& job,
                        const std::vector<std::vector<std::shared_ptr<GroupEngine>>>& groups,
                        std::mt19937_64& generator, std::size_t first = 0, std::size_t stride = 4) {
  static const std::vector<GroupCall> calls = group_calls();
  std::vector<std::pair<GroupEngine*, std::size_t>> begun;
  for (const auto& group : groups) {
    for (const auto& member : group) {
      for (std::size_t call = first; call < calls.size(); call += stride) {
        begun.emplace_back(member.get(), call);
      }
    }
  }
  for (int use = 0; use < 2; ++use) {
    std::ranges::shuffle(begun, generator);
    std::vector<Work> work;
    for (const auto& [member, call] : begun) work.push_back(calls[call](*member));
    job.run_until(
        [&] { return std::ranges::all_of(work, [](const auto& w) { return w.done(); }); });
    for (const Work& each : work) each.expect_right();
  }
}

void release(GroupJob& job, const std::vector<std::shared_ptr<GroupEngine>>& members) {
  for (const auto& member : members) {
    GroupJob::submit(member->engine(), {.kind = OperationKind::kClose});
  }
  job.run_until([&] {
    return std::ranges::all_of(members, [](const auto& each) { return each->engine().ended(); });
  });
}

TEST(Groups, EverySubsetOfFiveRanksWorksBesideAllOthers) {
  const auto grids = grids_of_five();
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 generator(seed);
    GroupJob job(grids[seed % grids.size()], seed, std::size_t{16} << 20);
    std::vector<std::vector<int>> subsets;
    for (int mask = 1; mask < 1 << kFiveRanks; ++mask) {
      std::vector<int> ranks;
      for (int rank = 0; rank < kFiveRanks; ++rank) {
        if ((mask >> rank & 1) != 0) ranks.push_back(rank);
      }
      std::ranges::shuffle(ranks, generator);
      subsets.push_back(ranks);
    }
    std::vector<std::pair<std::size_t, std::size_t>> order;  // subset, index in it
    std::map<std::pair<std::size_t, std::size_t>, std::shared_ptr<GroupCreation>> creations;
    for (std::size_t subset = 0; subset < subsets.size(); ++subset) {
      for (std::size_t i = 0; i < subsets[subset].size(); ++i) order.emplace_back(subset, i);
    }
    std::ranges::shuffle(order, generator);
    for (const auto& [subset, i] : order) {
      creations[{subset, i}] =
          job.create(subsets[subset][i], subsets[subset], "g", std::size_t{256} << 10);
    }
    job.run_until([&] {
      return std::ranges::all_of(creations,
                                 [](const auto& each) { return each.second->ticket.done(); });
    });
    std::vector<std::vector<std::shared_ptr<GroupEngine>>> groups(subsets.size());
    for (std::size_t subset = 0; subset < subsets.size(); ++subset) {
      for (std::size_t i = 0; i < subsets[subset].size(); ++i) {
        ASSERT_EQ(error_of(creations[{subset, i}]->ticket), "");
        groups[subset].push_back(creations[{subset, i}]->group);
        ASSERT_EQ(groups[subset].back()->rank(), static_cast<int>(i));
      }
    }
    // Each third of the calls runs on each grid once.
    expect_groups_work(job, groups, generator, seed % 3, 3);
    for (const auto& group : groups) release(job, group);
  }
}

TEST(Groups, AStallOfOneHoldsUpNoOther) {
  GroupJob job(ProcessGrid::with_node_sizes({2, 1}), 7);
  const auto stalled = job.create_all({0, 1, 2}, "stalled");
  const auto goes_on = job.create_all({2, 0}, "goes on");
  std::vector<float> data(10, 1);
  const auto waits = GroupJob::submit(stalled[0]->engine(), test::all_reduce("x", data));
  std::mt19937_64 generator(7);
  expect_groups_work(job, {goes_on}, generator);
  EXPECT_FALSE(waits->ticket->done());
  std::vector<std::vector<float>> others(2, std::vector<float>(10, 1));
  std::vector<std::shared_ptr<Operation>> operations{waits};
  for (std::size_t i = 1; i < 3; ++i) {
    operations.push_back(
        GroupJob::submit(stalled[i]->engine(), test::all_reduce("x", others[i - 1])));
  }
  job.finish(operations);
  EXPECT_EQ(data.front(), 3);
}

TEST(Groups, AFailureEndsItsGroupOnly) {
  GroupJob job(ProcessGrid::with_node_sizes({2, 3}), 3);
  const auto fails = job.create_all({0, 2, 3}, "fails");
  const auto lives = job.create_all({0, 3}, "lives");
  std::vector<float> data(10, 1);
  const auto pending = GroupJob::submit(fails[0]->engine(), test::all_reduce("x", data));
  fails[2]->engine().abort({.code = ErrorCode::kInternal, .rank = 2, .what = "broke"});
  job.finish({pending}, std::chrono::milliseconds(1));
  EXPECT_THAT(error_of(*pending), HasSubstr("rank 2: broke"));
  std::mt19937_64 generator(3);
  expect_groups_work(job, {lives}, generator);
  const auto later = GroupJob::submit(fails[1]->engine(), test::all_reduce("y", data));
  job.finish({later}, std::chrono::milliseconds(1));
  EXPECT_THAT(error_of(*later), HasSubstr("rank 2: broke"));
}

TEST(Groups, ARankThatIsLostToOneIsLostToTheJob) {
  GroupJob job(ProcessGrid::with_node_sizes({2, 1}), 5);
  const auto group = job.create_all({2, 0}, "g");
  std::vector<float> data(10, 1);
  const auto pending = GroupJob::submit(group[1]->engine(), test::all_reduce("x", data));
  job.freeze(2);
  job.run_until([&] { return job.engines(0).ended() && job.engines(1).ended(); },
                std::chrono::milliseconds(10));
  EXPECT_THAT(error_of(*pending),
              AllOf(HasSubstr("group 'g' [2, 0]: "), HasSubstr("rank 0 has been silent")));
  for (const int rank : {0, 1}) {
    const std::optional<Error>& error = job.engine(rank).failure();
    ASSERT_TRUE(error) << rank;
    EXPECT_EQ(error->code, ErrorCode::kPeerLost);
    EXPECT_EQ(error->peer, 2);
    EXPECT_EQ(error->group, "");
    EXPECT_THAT(error->what, HasSubstr("rank 2 is lost: group 'g' [2, 0]: "));
  }
}

// The error means rank 1 of the job, which is not the second member of the group (rank 0).
TEST(Groups, AnErrorInTheNumbersOfTheJobNamesNoMember) {
  GroupJob job(ProcessGrid::with_node_sizes({3}), 6);
  const auto group = job.create_all({2, 0}, "g");
  group[0]->engine().abort({.code = ErrorCode::kPeerLost, .rank = 0, .peer = 1, .what = "lost"});
  job.run_until([&] { return group[0]->engine().ended() && group[1]->engine().ended(); },
                std::chrono::milliseconds(10));
  std::vector<std::vector<float>> data(3, std::vector<float>(10, 1));
  std::vector<std::shared_ptr<Operation>> operations;
  for (int rank = 0; rank < 3; ++rank) {
    operations.push_back(GroupJob::submit(
        job.engine(rank), test::all_reduce("x", data[static_cast<std::size_t>(rank)])));
  }
  job.finish(operations);
  for (const auto& operation : operations) EXPECT_EQ(error_of(*operation), "");
}

TEST(Groups, TheEndOfTheJobIsTheirs) {
  GroupJob job(ProcessGrid::with_node_sizes({3}), 4);
  const auto group = job.create_all({2, 0}, "g");
  const auto half = job.create(1, {1, 2}, "never created");
  std::vector<float> data(10, 1);
  const auto pending = GroupJob::submit(group[0]->engine(), test::all_reduce("x", data));
  job.engine(1).abort({.code = ErrorCode::kPeerLost, .rank = 1, .peer = 1, .what = "rank 1 left"});
  job.run_until([&] { return pending->ticket->done() && half->ticket.done(); },
                std::chrono::milliseconds(1));
  EXPECT_THAT(error_of(*pending), HasSubstr("rank 1 left"));
  EXPECT_THAT(error_of(half->ticket), HasSubstr("rank 1 left"));
  job.run_until([&] { return job.engines(2).ended() && job.engines(1).ended(); },
                std::chrono::milliseconds(10));
  const auto late = job.create(2, {2, 0}, "late");
  EXPECT_THAT(error_of(late->ticket), HasSubstr("rank 1 left"));
}

TEST(Groups, AMemberThatDoesNotComeIsNamed) {
  Options options{.arena_bytes = GroupJob::kJobArena};
  options.operation_timeout = std::chrono::seconds(10);
  GroupJob job(ProcessGrid::with_node_sizes({3}), 5, std::size_t{1} << 20, options);
  const std::vector<int> ranks{0, 1, 2};
  const std::vector creations{job.create(0, ranks, "all"), job.create(2, ranks, "all")};
  job.run_until([&] { return creations[0]->ticket.done() && creations[1]->ticket.done(); },
                std::chrono::milliseconds(100));
  EXPECT_THAT(error_of(creations[0]->ticket),
              AllOf(HasSubstr("'all' [0, 1, 2]"), HasSubstr("rank 1 of the job has not")));
  EXPECT_EQ(error_of(creations[0]->ticket), error_of(creations[1]->ticket));
  std::mt19937_64 generator(5);
  expect_groups_work(job, {job.create_all({2, 0}, "two")}, generator);
}

TEST(Groups, WhatOneCannotHoldNobodyGets) {
  GroupJob job(ProcessGrid::with_node_sizes({2, 1}), 6, std::size_t{1} << 20);
  const std::vector<int> ranks{2, 1};
  const std::vector creations{job.create(1, ranks, "large", std::size_t{1} << 30),
                              job.create(2, ranks, "large", std::size_t{1} << 30)};
  job.run_until([&] { return creations[0]->ticket.done() && creations[1]->ticket.done(); });
  EXPECT_THAT(error_of(creations[0]->ticket), AllOf(HasSubstr("'large'"), HasSubstr("arena")));
  EXPECT_EQ(error_of(creations[0]->ticket), error_of(creations[1]->ticket));
  const std::vector unequal{job.create(1, ranks, "unequal", 4096),
                            job.create(2, ranks, "unequal", 8192)};
  job.run_until([&] { return unequal[0]->ticket.done() && unequal[1]->ticket.done(); });
  EXPECT_THAT(error_of(unequal[0]->ticket), AllOf(HasSubstr("4096"), HasSubstr("8192")));
  const std::vector late{std::make_shared<GroupCreation>(), std::make_shared<GroupCreation>()};
  for (std::size_t i = 0; i < 2; ++i) {
    late[i]->ranks = ranks;
    late[i]->arena_bytes = 4096;
    late[i]->operation_timeout = std::chrono::milliseconds(7000 + static_cast<int>(i));
    job.engines(ranks[i]).submit(late[i]);
  }
  job.run_until([&] { return late[0]->ticket.done() && late[1]->ticket.done(); });
  EXPECT_THAT(error_of(late[0]->ticket), AllOf(HasSubstr("7000 ms"), HasSubstr("7001 ms")));
  std::mt19937_64 generator(6);
  expect_groups_work(job, {job.create_all(ranks, "fits")}, generator);
}

// A node with a slow link computes no sums, so it sends each element once.
TEST(Groups, RatesOfLinksFollowTheirNodes) {
  constexpr std::size_t kElements = 1 << 10;
  GroupJob job(ProcessGrid::with_node_sizes({1, 1, 1, 1}), 7, std::size_t{1} << 20,
               {.algorithm = "direct",
                .link_costs = "node_rates=100:1000:1000:1000",
                .arena_bytes = GroupJob::kJobArena});
  const auto group = job.create_all({3, 1, 0});
  std::vector<std::uint64_t> before;
  std::vector<std::vector<float>> data;
  for (int rank = 0; rank < job.world_size(); ++rank) before.push_back(job.data_sent(rank));
  for (const auto& member : group) {
    data.emplace_back(kElements, static_cast<float>(rank_of_job(*member, member->rank()) + 1));
  }
  std::vector<std::shared_ptr<Operation>> operations;
  for (std::size_t i = 0; i < group.size(); ++i) {
    operations.push_back(GroupJob::submit(group[i]->engine(), test::all_reduce("x", data[i])));
  }
  job.finish(operations);
  for (const auto& each : data) EXPECT_EQ(each, std::vector<float>(kElements, 4 + 2 + 1));
  const auto sent = [&](int rank) {
    return job.data_sent(rank) - before[static_cast<std::size_t>(rank)];
  };
  EXPECT_EQ(sent(0), kElements * sizeof(float));
  EXPECT_EQ(sent(1), sent(3));
  EXPECT_GT(sent(1), sent(0));
}

TEST(Groups, HundredsComeAndGo) {
  GroupJob job(ProcessGrid::with_node_sizes({2, 1}), 8, std::size_t{64} << 20);
  std::mt19937_64 generator(8);
  for (int round = 0; round < 3; ++round) {
    std::vector<std::vector<std::shared_ptr<GroupEngine>>> groups;
    for (std::size_t i = 0; i < 200; ++i) {
      groups.push_back(job.create_all({static_cast<int>(i % 3), static_cast<int>((i + 1) % 3)},
                                      std::to_string(i)));
    }
    std::ranges::shuffle(groups, generator);
    expect_groups_work(job, groups, generator, static_cast<std::size_t>(round), 18);
    for (const auto& group : groups) release(job, group);
  }
}

TEST(Groups, OfOneRankNeedNobody) {
  GroupJob job(ProcessGrid::with_node_sizes({2}), 9);
  std::mt19937_64 generator(9);
  const auto alone = job.create_all({1}, "alone");
  expect_groups_work(job, {alone}, generator);
  release(job, alone);
}

}  // namespace
}  // namespace kolo
