// Members found groups in any order, and all learn when they cannot.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "comm/group/group_founder.h"

namespace kolo {
namespace {

using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// Founders that exchange bytes over channels which keep the order of each pair.
class Founders {
 public:
  explicit Founders(int ranks, GroupFounder::Patience patience = {}) : results_(index(ranks)) {
    for (int rank = 0; rank < ranks; ++rank) founders_.emplace_back(rank, patience);
  }

  std::uint64_t propose(int rank, GroupProposal proposal) {
    return founders_[index(rank)].propose(std::move(proposal), now_);
  }
  void advance(Duration by) {
    now_ += by;
    for (GroupFounder& founder : founders_) {
      founder.tick(now_, [this](ControlSwitch::Number group) {
        return GroupFounder::Absent{.joined = joined[group], .closed = closed[group]};
      });
    }
  }
  /// Delivers everything, each time from a random pair.
  void deliver(std::mt19937_64& generator) {
    for (;;) {
      for (std::size_t rank = 0; rank < founders_.size(); ++rank) {
        for (auto& outgoing : founders_[rank].take_outgoing()) {
          channels_[{static_cast<int>(rank), outgoing.peer}].push_back(std::move(outgoing.bytes));
        }
        for (auto& outcome : founders_[rank].take_outcomes()) {
          results_[rank].emplace(outcome.id, std::move(outcome.result));
        }
      }
      std::erase_if(channels_, [](const auto& channel) { return channel.second.empty(); });
      if (channels_.empty()) return;
      auto channel =
          std::next(channels_.begin(), static_cast<std::ptrdiff_t>(generator() % channels_.size()));
      const std::vector<std::byte> bytes = std::move(channel->second.front());
      channel->second.pop_front();
      founders_[index(channel->first.second)].receive(channel->first.first, bytes);
    }
  }

  /// By group: the ranks that have joined, and those that have closed; equal on all ranks.
  std::map<ControlSwitch::Number, std::set<int>> joined, closed;

  bool is_decided(int rank, std::uint64_t id) const { return results_[index(rank)].contains(id); }
  const std::vector<GroupPlace>& places(int rank, std::uint64_t id) const {
    return std::get<std::vector<GroupPlace>>(results_[index(rank)].at(id));
  }
  const Error& error(int rank, std::uint64_t id) const {
    return std::get<Error>(results_[index(rank)].at(id));
  }
  bool is_waiting() const {
    return std::ranges::any_of(founders_, [](const auto& each) { return each.is_waiting(); });
  }

 private:
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

  TimePoint now_{};
  std::vector<GroupFounder> founders_;
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

TEST(GroupFounder, TellsAllPlacesInTheOrderOfTheGroup) {
  std::mt19937_64 generator(1);
  Founders founders(4);
  const std::vector<int> ranks{3, 0, 2};
  std::map<int, std::uint64_t> ids;
  for (int rank : ranks) ids[rank] = founders.propose(rank, proposal_of(rank, ranks));
  founders.deliver(generator);
  for (int rank : ranks) {
    const auto& places = founders.places(rank, ids[rank]);
    ASSERT_EQ(places.size(), 3u);
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(places[i], proposal_of(ranks[i], ranks).place);
    }
  }
  EXPECT_FALSE(founders.is_waiting());
}

TEST(GroupFounder, FoundsEverySubsetInAnyOrder) {
  constexpr int kRanks = 5;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    std::mt19937_64 generator(seed);
    Founders founders(kRanks);
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
      ids[{rank, group}] = founders.propose(rank, proposal_of(rank, groups[group], group));
      if (generator() % 3 == 0) founders.deliver(generator);
    }
    founders.deliver(generator);
    for (const auto& [rank, group] : proposals) {
      const auto& places = founders.places(rank, ids[{rank, group}]);
      ASSERT_EQ(places.size(), groups[group].size());
      for (std::size_t i = 0; i < places.size(); ++i) {
        EXPECT_EQ(places[i], proposal_of(groups[group][i], groups[group], group).place);
      }
    }
  }
}

TEST(GroupFounder, TellsGroupsOfTheSameRanksApart) {
  std::mt19937_64 generator(2);
  Founders founders(2);
  const std::vector<int> ranks{0, 1};
  const auto propose_all = [&](int rank) {
    return std::vector{founders.propose(rank, proposal_of(rank, ranks, 1)),
                       founders.propose(rank, proposal_of(rank, ranks, 2, "other")),
                       founders.propose(rank, proposal_of(rank, ranks, 3))};
  };
  const auto first = propose_all(0);
  const auto second = propose_all(1);
  founders.deliver(generator);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(founders.places(0, first[i])[1].inbox, i + 1);
    EXPECT_EQ(founders.places(1, second[i])[0].inbox, i + 1);
  }
}

TEST(GroupFounder, RefusesDifferentSettingsOnAllMembers) {
  std::mt19937_64 generator(3);
  Founders founders(3);
  const std::vector<int> ranks{1, 2};
  GroupProposal other = proposal_of(2, ranks);
  other.settings = "arena 2";
  const auto first = founders.propose(1, proposal_of(1, ranks));
  const auto second = founders.propose(2, other);
  founders.deliver(generator);
  EXPECT_EQ(founders.error(1, first).to_string(), founders.error(2, second).to_string());
  EXPECT_THAT(founders.error(1, first).to_string(),
              AllOf(HasSubstr("'g' [1, 2]"), HasSubstr("arena 1"), HasSubstr("arena 2")));
  EXPECT_EQ(founders.error(1, first).code, ErrorCode::kMismatch);
}

TEST(GroupFounder, RefusesAnotherOrderOfMembersOnAll) {
  std::mt19937_64 generator(7);
  Founders founders(4);
  const std::vector<int> ranks{3, 1, 2}, others{1, 3, 2};
  std::map<int, std::uint64_t> ids;
  for (const int rank : ranks) {
    ids[rank] = founders.propose(rank, proposal_of(rank, rank == 3 ? others : ranks));
  }
  founders.deliver(generator);
  for (const int rank : ranks) {
    const Error& error = founders.error(rank, ids[rank]);
    EXPECT_EQ(error.code, ErrorCode::kMismatch);
    EXPECT_THAT(error.to_string(), HasSubstr("the job's rank 3 names the members in another order "
                                             "than rank 1, by whose list they are 3, 1, 2"));
  }
  for (const int rank : ranks) ids[rank] = founders.propose(rank, proposal_of(rank, ranks));
  founders.deliver(generator);
  for (const int rank : ranks) EXPECT_EQ(founders.places(rank, ids[rank]).size(), 3u);
}

TEST(GroupFounder, TellsAllMembersOfAnObstacleOfOne) {
  std::mt19937_64 generator(4);
  Founders founders(3);
  const std::vector<int> ranks{0, 1, 2};
  GroupProposal obstructed = proposal_of(1, ranks);
  obstructed.obstacle = {.code = ErrorCode::kResources, .rank = 1, .what = "no memory"};
  const std::vector ids{founders.propose(0, proposal_of(0, ranks)), founders.propose(1, obstructed),
                        founders.propose(2, proposal_of(2, ranks))};
  founders.deliver(generator);
  for (int rank = 0; rank < 3; ++rank) {
    const Error& error = founders.error(rank, ids[static_cast<std::size_t>(rank)]);
    EXPECT_EQ(error.code, ErrorCode::kResources);
    EXPECT_EQ(error.to_string(), "group 'g' [0, 1, 2]: rank 1: no memory");
  }
}

TEST(GroupFounder, NamesThoseThatDoNotComeAndCanBeAskedAgain) {
  std::mt19937_64 generator(5);
  Founders founders(4, {.warn_after = seconds(1), .fail_after = seconds(9)});
  const std::vector<int> ranks{0, 2, 3};
  const auto first = founders.propose(0, proposal_of(0, ranks));
  const auto second = founders.propose(2, proposal_of(2, ranks));
  founders.deliver(generator);
  founders.advance(seconds(8));
  founders.deliver(generator);
  EXPECT_FALSE(founders.is_decided(0, first));
  founders.advance(seconds(1));
  founders.deliver(generator);
  EXPECT_EQ(founders.error(0, first).code, ErrorCode::kStall);
  EXPECT_THAT(founders.error(0, first).to_string(), HasSubstr("rank 3 of the job has not"));
  EXPECT_EQ(founders.error(0, first).to_string(), founders.error(2, second).to_string());
}

TEST(GroupFounder, GivesTheErrorToThoseThatComeLateAndThenForgetsIt) {
  std::mt19937_64 generator(8);
  Founders founders(3, {.warn_after = seconds(1), .fail_after = seconds(9)});
  const std::vector<int> ranks{0, 1, 2};
  std::map<int, std::uint64_t> ids;
  for (const int rank : {0, 2}) ids[rank] = founders.propose(rank, proposal_of(rank, ranks));
  founders.deliver(generator);
  founders.advance(seconds(9));
  founders.deliver(generator);
  ids[1] = founders.propose(1, proposal_of(1, ranks));
  founders.deliver(generator);
  for (const int rank : ranks) {
    EXPECT_EQ(founders.error(rank, ids[rank]).to_string(), founders.error(0, ids[0]).to_string());
  }
  for (const int rank : ranks) ids[rank] = founders.propose(rank, proposal_of(rank, ranks));
  founders.deliver(generator);
  for (const int rank : ranks) EXPECT_EQ(founders.places(rank, ids[rank]).size(), 3u);
  EXPECT_FALSE(founders.is_waiting());
}

// For any joined member, and however often the others ask.
TEST(GroupFounder, WaitsForNobodyWhoHasJoined) {
  const std::vector<int> ranks{2, 0, 1};
  for (const int joined : ranks) {
    std::mt19937_64 generator(9);
    Founders founders(3);
    for (int times = 0; times < 3; ++times) {
      std::map<int, std::uint64_t> ids;
      founders.joined[0] = {joined};
      for (const int rank : ranks) {
        if (rank != joined) ids[rank] = founders.propose(rank, proposal_of(rank, ranks));
        founders.deliver(generator);
        founders.advance(seconds(0));
      }
      founders.deliver(generator);
      for (const auto& [rank, id] : ids) {
        EXPECT_EQ(founders.error(rank, id).code, ErrorCode::kMismatch);
        EXPECT_EQ(founders.error(rank, id).to_string(),
                  "group 'g' [2, 0, 1]: join: rank " + std::to_string(joined) +
                      " of the job has joined and founds no group until all have");
      }
      EXPECT_FALSE(founders.is_waiting());
      founders.joined.clear();
      for (const int rank : ranks) ids[rank] = founders.propose(rank, proposal_of(rank, ranks));
      founders.deliver(generator);
      for (const int rank : ranks) EXPECT_EQ(founders.places(rank, ids[rank]).size(), 3u);
    }
  }
}

// A member whose proposal has come does not count as joined, whatever is reported of it.
TEST(GroupFounder, WaitsForNobodyWhoHasClosed) {
  std::mt19937_64 generator(11);
  Founders founders(3);
  founders.joined[0] = {1, 2};
  founders.closed[0] = {2};
  const auto id = founders.propose(0, proposal_of(0, {0, 1, 2}));
  founders.deliver(generator);
  founders.advance(seconds(0));
  founders.deliver(generator);
  EXPECT_EQ(founders.error(0, id).code, ErrorCode::kMismatch);
  EXPECT_EQ(
      founders.error(0, id).to_string(),
      "group 'g' [0, 1, 2]: close: rank 2 of the job has closed and founds no group any more");
}

TEST(GroupFounder, AsksWhoHasJoinedInTheGroupThatAnotherIsFoundedFrom) {
  std::mt19937_64 generator(10);
  Founders founders(3);
  const std::vector<int> ranks{0, 1, 2};
  const auto of_group = [&](int rank, ControlSwitch::Number parent) {
    GroupProposal proposal = proposal_of(rank, ranks);
    proposal.parent = parent;
    return proposal;
  };
  founders.joined = {{0, {2}}, {7, {0}}};
  const auto waits = founders.propose(2, of_group(2, 5));
  founders.propose(1, of_group(1, 5));
  founders.deliver(generator);
  founders.advance(seconds(0));
  founders.deliver(generator);
  EXPECT_FALSE(founders.is_decided(2, waits));
  founders.joined[5] = {0, 2};
  founders.advance(seconds(0));
  founders.deliver(generator);
  EXPECT_THAT(founders.error(2, waits).to_string(), HasSubstr("rank 0 of the job has joined"));
}

// They may come from a stranger.
TEST(GroupFounder, DropsMalformedBytes) {
  std::mt19937_64 generator(6);
  for (int i = 0; i < 2000; ++i) {
    GroupFounder founder(0, {});
    founder.propose(proposal_of(0, {0, 1}), {});
    std::vector<std::byte> bytes(generator() % 60);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(generator() % 4);
    founder.receive(1, bytes);
    for (const GroupFounder::Outcome& outcome : founder.take_outcomes()) EXPECT_EQ(outcome.id, 0U);
  }
}

}  // namespace
}  // namespace kolo
