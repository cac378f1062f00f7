// Tests groups that are created while some ranks have run out of data.

#include <gmock/gmock.h>

#include "runtime/engine/joining.h"
#include "tests/support/engine_job.h"
#include "tests/support/group_job.h"

namespace kolo {
namespace {

using test::GroupJob;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr unsigned kCreationSeeds = 5;

using Creations = std::vector<std::shared_ptr<GroupCreation>>;
using JoinTickets = std::vector<std::shared_ptr<JoinTicket>>;

std::shared_ptr<JoinTicket> join_in(Engine& engine) {
  auto ticket = std::make_shared<JoinTicket>();
  engine.submit(ticket);
  return ticket;
}

void run_until_all_joined(GroupJob& job, const JoinTickets& tickets) {
  job.run_until([&] {
    return std::ranges::all_of(tickets, [](const auto& ticket) { return ticket->done(); });
  });
}

/// Returns the errors of all creations; empty for each that succeeded.
std::vector<std::string> errors_of(GroupJob& job, const Creations& creations) {
  job.run_until([&] {
    return std::ranges::all_of(creations, [](const auto& each) { return each->ticket.done(); });
  });
  std::vector<std::string> errors;
  for (const auto& creation : creations) {
    try {
      creation->ticket.wait(std::chrono::milliseconds(1));
      errors.emplace_back();
    } catch (const KoloError& e) {
      errors.emplace_back(e.what());
    }
  }
  return errors;
}

class JoinedGroupCreation : public ::testing::TestWithParam<std::vector<int>> {
 protected:
  const ProcessGrid grid_ = ProcessGrid::with_node_sizes(GetParam());
};

// Any member may have joined, also the one that collects the requests, and the others may learn it
// at any time. All get the error. Then the same ranks can create the group.
TEST_P(JoinedGroupCreation, FailsAlikeOnAllThatCall) {
  const std::vector<int> ranks{2, 0, 3, 1};
  for (unsigned seed = 0; seed < kCreationSeeds; ++seed) {
    for (int joined = 0; joined < 4; ++joined) {
      SCOPED_TRACE("rank " + std::to_string(joined) + ", seed " + std::to_string(seed));
      GroupJob job(grid_, seed);
      Creations creations;
      JoinTickets tickets;
      for (const int rank : ranks) {
        if (rank == joined) {
          tickets.push_back(join_in(job.engine(rank)));
        } else {
          creations.push_back(job.create(rank, ranks));
        }
      }
      const std::string n = std::to_string(joined);
      EXPECT_THAT(errors_of(job, creations),
                  Each("group 'g' [2, 0, 3, 1]: join: rank " + n +
                       " of the job has joined and creates no group until all have"));
      for (const int rank : ranks) {
        if (rank != joined) tickets.push_back(join_in(job.engine(rank)));
      }
      run_until_all_joined(job, tickets);
      creations.clear();
      for (const int rank : ranks) creations.push_back(job.create(rank, ranks));
      EXPECT_THAT(errors_of(job, creations), Each(""));
    }
  }
}

TEST_P(JoinedGroupCreation, NamesAllThatHaveJoined) {
  for (unsigned seed = 0; seed < kCreationSeeds; ++seed) {
    GroupJob job(grid_, seed);
    const std::vector<int> ranks{0, 1, 2, 3};
    const JoinTickets tickets{join_in(job.engine(0)), join_in(job.engine(2))};
    const Creations early{job.create(1, ranks)};
    job.run_until([&, polls = 0]() mutable { return ++polls > 400; });
    EXPECT_FALSE(early[0]->ticket.done()) << "rank 3 may come";
    const Creations creations{early[0], job.create(3, ranks)};
    EXPECT_THAT(
        errors_of(job, creations),
        Each("group 'g' [0, 1, 2, 3]: join: ranks 0, 2 of the job have joined and create no "
             "group until all have"));
  }
}

TEST_P(JoinedGroupCreation, WithoutThemWorks) {
  for (unsigned seed = 0; seed < kCreationSeeds; ++seed) {
    GroupJob job(grid_, seed);
    const JoinTickets tickets{join_in(job.engine(0)), join_in(job.engine(2))};
    const Creations creations{job.create(3, {1, 3}), job.create(1, {1, 3})};
    EXPECT_THAT(errors_of(job, creations), Each(""));
  }
}

// A rank's join in another group has no effect.
TEST_P(JoinedGroupCreation, DependsOnTheGroupThatItIsCreatedFrom) {
  for (unsigned seed = 0; seed < kCreationSeeds; ++seed) {
    for (std::size_t joined = 0; joined < 3; ++joined) {
      SCOPED_TRACE("member " + std::to_string(joined) + ", seed " + std::to_string(seed));
      GroupJob job(grid_, seed);
      const std::vector<int> ranks{3, 0, 2};
      const auto parent = job.create_all(ranks, "parent");
      const auto create = [&](std::size_t member, const std::string& name, bool from_parent) {
        auto creation = std::make_shared<GroupCreation>();
        creation->name = name;
        creation->ranks = ranks;
        creation->arena_bytes = std::size_t{32} << 10;
        if (from_parent) creation->parent = parent[member];
        job.engines(ranks[member]).submit(creation);
        return creation;
      };
      JoinTickets tickets{join_in(parent[joined]->engine())};
      Creations from_parent, from_job;
      for (std::size_t member = 0; member < 3; ++member) {
        from_job.push_back(create(member, "of the job", false));
        if (member != joined) from_parent.push_back(create(member, "of the parent", true));
      }
      EXPECT_THAT(errors_of(job, from_job), Each(""));
      EXPECT_THAT(
          errors_of(job, from_parent),
          Each("group 'of the parent' [3, 0, 2]: join: rank " + std::to_string(ranks[joined]) +
               " of the job has joined and creates no group until all have"));
      for (std::size_t member = 0; member < 3; ++member) {
        if (member != joined) tickets.push_back(join_in(parent[member]->engine()));
      }
      run_until_all_joined(job, tickets);
      from_parent.clear();
      for (std::size_t member = 0; member < 3; ++member) {
        from_parent.push_back(create(member, "of the parent", true));
      }
      EXPECT_THAT(errors_of(job, from_parent), Each(""));
    }
  }
}

// Rank 2 learns of the refusal by its own call, rank 0 before it calls. The group goes on.
TEST_P(JoinedGroupCreation, OutlivesAnEndOfTheJobThatIsRefused) {
  for (unsigned seed = 0; seed < kCreationSeeds; ++seed) {
    GroupJob job(grid_, seed);
    const auto members = job.create_all({0, 1, 2, 3});
    JoinTickets tickets{join_in(job.engine(1))};
    for (const int rank : {2, 0}) {
      job.run_until([&] { return job.engine(rank).joined().contains(1); });
      const auto end = GroupJob::submit(job.engine(rank), {.kind = OperationKind::kClose});
      job.finish({end});
      EXPECT_THAT(test::error_of(*end), HasSubstr("all ranks must join first"));
    }
    for (const int rank : {0, 2, 3}) tickets.push_back(join_in(job.engine(rank)));
    run_until_all_joined(job, tickets);
    std::vector<std::vector<float>> data(4, std::vector<float>(10, 1));
    std::vector<std::shared_ptr<Operation>> sums;
    for (std::size_t rank = 0; rank < 4; ++rank) {
      sums.push_back(GroupJob::submit(members[rank]->engine(), test::all_reduce("x", data[rank])));
    }
    job.finish(sums);
    for (const auto& sum : sums) EXPECT_EQ(test::error_of(*sum), "") << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Nodes, JoinedGroupCreation,
                         ::testing::Values(std::vector{4}, std::vector{2, 2},
                                           std::vector{1, 1, 1, 1}));

}  // namespace
}  // namespace kolo
