// Ranks create groups in any order, and all learn the reason if a group cannot be created.

#include <gmock/gmock.h>

#include <deque>
#include <random>

#include "comm/group/group_creator.h"

namespace kolo {
namespace {

using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// Group creators that exchange bytes. The bytes of each pair of ranks keep their order.
class Creators {
 public:
  explicit Creators(int ranks, std::uint64_t seed, GroupCreator::Patience patience = {})
      : generator_(seed), results_(index(ranks)) {
    for (int rank = 0; rank < ranks; ++rank) creators_.emplace_back(rank, patience);
  }

  std::uint64_t propose(int rank, GroupProposal proposal) {
    return creators_[index(rank)].propose(std::move(proposal));
  }
  void advance(Duration by) {
    now_ += by;
    for (GroupCreator& creator : creators_) {
      creator.tick(now_, [this](ControlDemux::Number group) {
        return GroupCreator::Absent{.joined = joined[group], .closed = closed[group]};
      });
    }
  }
  /// Delivers all bytes in flight, each time from a random pair.
  void deliver() {
    for (;;) {
      for (std::size_t rank = 0; rank < creators_.size(); ++rank) {
        for (auto& outgoing : creators_[rank].take_outgoing()) {
          channels_[{static_cast<int>(rank), outgoing.peer}].push_back(std::move(outgoing.bytes));
        }
        for (auto& outcome : creators_[rank].take_outcomes()) {
          results_[rank].emplace(outcome.id, std::move(outcome.result));
        }
      }
      std::erase_if(channels_, [](const auto& channel) { return channel.second.empty(); });
      if (channels_.empty()) return;
      auto channel = std::next(channels_.begin(),
                               static_cast<std::ptrdiff_t>(generator_() % channels_.size()));
      const std::vector<std::byte> bytes = std::move(channel->second.front());
      channel->second.pop_front();
      creators_[index(channel->first.second)].receive(channel->first.first, bytes);
    }
  }

  /// The ranks that have joined or closed, by number of the group. Equal on all ranks.
  std::map<ControlDemux::Number, std::set<int>> joined, closed;

  bool is_decided(int rank, std::uint64_t id) const { return results_[index(rank)].contains(id); }
  const std::vector<GroupPlace>& places(int rank, std::uint64_t id) const {
    return std::get<std::vector<GroupPlace>>(results_[index(rank)].at(id));
  }
  const Error& error(int rank, std::uint64_t id) const {
    return std::get<Error>(results_[index(rank)].at(id));
  }
  bool is_waiting() const {
    return std::ranges::any_of(creators_, [](const auto& each) { return each.is_waiting(); });
  }

 private:
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

  std::mt19937_64 generator_;
  TimePoint now_{};
  std::vector<GroupCreator> creators_;
  std::map<std::pair<int, int>, std::deque<std::vector<std::byte>>> channels_;
  std::vector<std::map<std::uint64_t, std::variant<std::vector<GroupPlace>, Error>>> results_;
};

GroupProposal proposal_of(int rank, std::vector<int> ranks, std::uint64_t number = 1,
                          std::string name = "g") {
  return {.name = std::move(name),
          .ranks = std::move(ranks),
          .settings = "arena 1",
          .place = {.inbox = number,
                    .first_bucket = static_cast<std::uint32_t>(100 * rank),
                    .arena_offset = number << 40}};
}

using Ids = std::map<int, std::uint64_t>;  // by rank

/// All members but one propose their group.
Ids propose(Creators& creators, const std::vector<int>& ranks, int but_for = -1) {
  Ids ids;
  for (const int rank : ranks) {
    if (rank != but_for) ids[rank] = creators.propose(rank, proposal_of(rank, ranks));
  }
  return ids;
}

/// Expects that members which propose the group now are told all places, in its order.
void expect_created(Creators& creators, const std::vector<int>& ranks) {
  Ids ids = propose(creators, ranks);
  creators.deliver();
  for (const int rank : ranks) {
    const auto& places = creators.places(rank, ids[rank]);
    ASSERT_EQ(places.size(), ranks.size());
    for (std::size_t i = 0; i < places.size(); ++i) {
      EXPECT_EQ(places[i], proposal_of(ranks[i], ranks).place);
    }
  }
  EXPECT_FALSE(creators.is_waiting());
}

TEST(GroupCreator, TellsAllPlacesInTheOrderOfTheGroup) {
  Creators creators(4, 1);
  expect_created(creators, {3, 0, 2});
}

TEST(GroupCreator, CreatesEverySubsetInAnyOrder) {
  constexpr int kRanks = 5;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    std::mt19937_64 generator(seed);
    Creators creators(kRanks, seed);
    std::vector<std::vector<int>> groups;
    for (int mask = 1; mask < 1 << kRanks; ++mask) {
      std::vector<int> ranks;
      for (int rank = 0; rank < kRanks; ++rank) {
        if ((mask >> rank & 1) != 0) ranks.push_back(rank);
      }
      std::ranges::shuffle(ranks, generator);
      groups.push_back(ranks);
    }
    std::vector<std::pair<int, std::size_t>> proposals;
    for (std::size_t group = 0; group < groups.size(); ++group) {
      for (int rank : groups[group]) proposals.emplace_back(rank, group);
    }
    std::ranges::shuffle(proposals, generator);
    std::map<std::pair<int, std::size_t>, std::uint64_t> ids;
    for (const auto& [rank, group] : proposals) {
      ids[{rank, group}] = creators.propose(rank, proposal_of(rank, groups[group], group));
      if (generator() % 3 == 0) creators.deliver();
    }
    creators.deliver();
    for (const auto& [rank, group] : proposals) {
      const auto& places = creators.places(rank, ids[{rank, group}]);
      ASSERT_EQ(places.size(), groups[group].size());
      for (std::size_t i = 0; i < places.size(); ++i) {
        EXPECT_EQ(places[i], proposal_of(groups[group][i], groups[group], group).place);
      }
    }
  }
}

TEST(GroupCreator, TellsGroupsOfTheSameRanksApart) {
  Creators creators(2, 2);
  const std::vector<int> ranks{0, 1};
  const auto propose_all = [&](int rank) {
    return std::vector{creators.propose(rank, proposal_of(rank, ranks, 1)),
                       creators.propose(rank, proposal_of(rank, ranks, 2, "other")),
                       creators.propose(rank, proposal_of(rank, ranks, 3))};
  };
  const auto first = propose_all(0);
  const auto second = propose_all(1);
  creators.deliver();
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(creators.places(0, first[i])[1].inbox, i + 1);
    EXPECT_EQ(creators.places(1, second[i])[0].inbox, i + 1);
  }
}

TEST(GroupCreator, RefusesDifferentSettingsOnAllMembers) {
  Creators creators(3, 3);
  const std::vector<int> ranks{1, 2};
  GroupProposal other = proposal_of(2, ranks);
  other.settings = "arena 2";
  const auto first = creators.propose(1, proposal_of(1, ranks));
  const auto second = creators.propose(2, other);
  creators.deliver();
  EXPECT_EQ(creators.error(1, first).to_string(), creators.error(2, second).to_string());
  EXPECT_THAT(creators.error(1, first).to_string(),
              AllOf(HasSubstr("'g' [1, 2]"), HasSubstr("arena 1"), HasSubstr("arena 2")));
  EXPECT_EQ(creators.error(1, first).code, ErrorCode::kMismatch);
}

TEST(GroupCreator, RefusesAnotherOrderOfMembersOnAll) {
  Creators creators(4, 7);
  const std::vector<int> ranks{3, 1, 2}, others{1, 3, 2};
  Ids ids = propose(creators, ranks, 3);
  ids[3] = creators.propose(3, proposal_of(3, others));
  creators.deliver();
  for (const int rank : ranks) {
    const Error& error = creators.error(rank, ids[rank]);
    EXPECT_EQ(error.code, ErrorCode::kMismatch);
    EXPECT_THAT(error.to_string(), HasSubstr("the job's rank 3 names the members in another order "
                                             "than rank 1, by whose list they are 3, 1, 2"));
  }
  expect_created(creators, ranks);
}

TEST(GroupCreator, TellsAllMembersOfAnObstacleOfOne) {
  Creators creators(3, 4);
  const std::vector<int> ranks{0, 1, 2};
  GroupProposal obstructed = proposal_of(1, ranks);
  obstructed.obstacle = {.code = ErrorCode::kResources, .rank = 1, .what = "no memory"};
  Ids ids = propose(creators, ranks, 1);
  ids[1] = creators.propose(1, obstructed);
  creators.deliver();
  for (const int rank : ranks) {
    const Error& error = creators.error(rank, ids[rank]);
    EXPECT_EQ(error.code, ErrorCode::kResources);
    EXPECT_EQ(error.to_string(), "group 'g' [0, 1, 2]: rank 1: no memory");
  }
}

// The collecting rank, the first of the group, may be the one that does not come.
TEST(GroupCreator, NamesWhoDoesNotComeAlsoToThatRankAndThenForgetsIt) {
  const std::vector<int> ranks{0, 2, 3};
  for (const int missing : ranks) {
    SCOPED_TRACE("rank " + std::to_string(missing));
    Creators creators(4, 5, {.warn_after = seconds(1), .fail_after = seconds(9)});
    Ids ids = propose(creators, ranks, missing);
    creators.deliver();
    creators.advance(seconds(0));
    creators.advance(seconds(8));
    creators.deliver();
    for (const auto& [rank, id] : ids) EXPECT_FALSE(creators.is_decided(rank, id));
    creators.advance(seconds(1));
    creators.deliver();
    ids[missing] = creators.propose(missing, proposal_of(missing, ranks));
    creators.deliver();
    for (const auto& [rank, id] : ids) {
      const Error& error = creators.error(rank, id);
      EXPECT_EQ(error.code, ErrorCode::kStall);
      EXPECT_THAT(error.to_string(),
                  HasSubstr("rank " + std::to_string(missing) + " of the job has not"));
      EXPECT_EQ(error.to_string(), creators.error(2, ids[2]).to_string());
    }
    expect_created(creators, ranks);
  }
}

// Any rank may have joined, and the others may ask any number of times.
TEST(GroupCreator, WaitsForNobodyWhoHasJoined) {
  const std::vector<int> ranks{2, 0, 1};
  for (const int joined : ranks) {
    Creators creators(3, 9);
    for (int times = 0; times < 3; ++times) {
      Ids ids;
      creators.joined[0] = {joined};
      for (const int rank : ranks) {
        if (rank != joined) ids[rank] = creators.propose(rank, proposal_of(rank, ranks));
        creators.deliver();
        creators.advance(seconds(0));
      }
      creators.deliver();
      for (const auto& [rank, id] : ids) {
        EXPECT_EQ(creators.error(rank, id).code, ErrorCode::kMismatch);
        EXPECT_EQ(creators.error(rank, id).to_string(),
                  "group 'g' [2, 0, 1]: join: rank " + std::to_string(joined) +
                      " of the job has joined and creates no group until all have");
      }
      EXPECT_FALSE(creators.is_waiting());
      creators.joined.clear();
      expect_created(creators, ranks);
    }
  }
}

// A rank that has closed is named as closed, although it is also reported as joined.
TEST(GroupCreator, WaitsForNobodyWhoHasClosed) {
  Creators creators(3, 11);
  creators.joined[0] = {1, 2};
  creators.closed[0] = {2};
  const auto id = creators.propose(0, proposal_of(0, {0, 1, 2}));
  creators.deliver();
  creators.advance(seconds(0));
  creators.deliver();
  EXPECT_EQ(creators.error(0, id).code, ErrorCode::kMismatch);
  EXPECT_EQ(
      creators.error(0, id).to_string(),
      "group 'g' [0, 1, 2]: close: rank 2 of the job has closed and creates no group any more");
}

TEST(GroupCreator, AsksWhoHasJoinedInTheGroupThatAnotherIsCreatedFrom) {
  Creators creators(3, 10);
  const std::vector<int> ranks{0, 1, 2};
  const auto of_group = [&](int rank, ControlDemux::Number parent) {
    GroupProposal proposal = proposal_of(rank, ranks);
    proposal.parent = parent;
    return proposal;
  };
  creators.joined = {{0, {2}}, {7, {0}}};
  const auto waits = creators.propose(2, of_group(2, 5));
  creators.propose(1, of_group(1, 5));
  creators.deliver();
  creators.advance(seconds(0));
  creators.deliver();
  EXPECT_FALSE(creators.is_decided(2, waits));
  creators.joined[5] = {0, 2};
  creators.advance(seconds(0));
  creators.deliver();
  EXPECT_THAT(creators.error(2, waits).to_string(), HasSubstr("rank 0 of the job has joined"));
}

// Malformed bytes may come from outside the job.
TEST(GroupCreator, DropsMalformedBytes) {
  std::mt19937_64 generator(6);
  for (int i = 0; i < 2000; ++i) {
    GroupCreator creator(0, {});
    creator.propose(proposal_of(0, {0, 1}));
    std::vector<std::byte> bytes(generator() % 60);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(generator() % 4);
    creator.receive(1, bytes);
    for (const GroupCreator::Outcome& outcome : creator.take_outcomes()) EXPECT_EQ(outcome.id, 0U);
  }
}

}  // namespace
}  // namespace kolo
