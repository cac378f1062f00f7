// Floods invitations through trees of many shapes, with seeded interleavings.

#include "comm/coordinator/join_announcements.h"

#include <gmock/gmock.h>

#include <deque>
#include <random>

namespace kolo {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Random = std::mt19937_64;
using Edge = std::pair<int, int>;  // from, to

/// All ranks, and the frames in flight between them. Only the order on each edge is kept.
class Party {
 public:
  explicit Party(const std::vector<int>& nodes) {
    const auto grid = ProcessGrid::with_node_sizes(nodes);
    for (int rank = 0; rank < grid.world_size(); ++rank) {
      trees_.push_back(CombiningTree::build(rank, grid, 2));
    }
    for (const CombiningTree& tree : trees_) guests_.emplace_back(tree);
  }

  int size() const { return static_cast<int>(guests_.size()); }
  JoinAnnouncements& guest(int rank) { return guests_[static_cast<std::size_t>(rank)]; }
  const CombiningTree& tree(int rank) const { return trees_[static_cast<std::size_t>(rank)]; }

  void join(int rank) {
    guest(rank).join(rank);
    collect(rank);
  }
  void invite(int rank, const ProposalKey& key) {
    guest(rank).invite(std::vector{key});
    collect(rank);
  }
  void invite(int rank, const Invitation& invitation) {
    guest(rank).invite(invitation);
    collect(rank);
  }
  void decline(int rank, const ProposalKey& key, const std::string& why) {
    guest(rank).decline(key, {.what = why});
    collect(rank);
  }

  /// Delivers the next frame of a random edge. Returns false if no frame is in flight.
  bool deliver(Random& random) {
    if (wires_.empty()) return false;
    const auto wire =
        std::next(wires_.begin(), static_cast<std::ptrdiff_t>(random() % wires_.size()));
    const auto [from, to] = wire->first;
    const Frame frame = std::move(wire->second.front());
    wire->second.pop_front();
    if (wire->second.empty()) wires_.erase(wire);
    EXPECT_TRUE(guest(to).receive(from, frame));
    collect(to);
    return true;
  }
  void deliver_all(Random& random) {
    while (deliver(random)) {
    }
  }

  /// Number of frames for each proposal that have crossed an edge.
  std::map<std::pair<Edge, ProposalKey>, int> crossings;
  std::vector<ProposalKey> rejected;

 private:
  void collect(int rank) {
    for (auto& [peer, frame] : guest(rank).take_outgoing()) {
      const Edge edge{rank, peer};
      for (const ProposalKey& key : frame.keys) ++crossings[{edge, key}];
      if (frame.kind == FrameKind::kDecline) ++crossings[{edge, frame.key}];
      wires_[edge].push_back(std::move(frame));
    }
    for (const auto& declined : guest(rank).take_declined()) {
      EXPECT_EQ(tree(rank).parent, -1);
      rejected.push_back(declined.key);
    }
  }

  std::deque<CombiningTree> trees_;
  std::deque<JoinAnnouncements> guests_;
  std::map<Edge, std::deque<Frame>> wires_;
};

std::vector<ProposalKey> keys_of(const std::vector<Invitation>& invitations) {
  std::vector<ProposalKey> keys;
  for (const Invitation& each : invitations) keys.push_back(each.key);
  return keys;
}

class InvitationShapes : public ::testing::TestWithParam<std::vector<int>> {};

// Each rank begins the rounds of each hash in order, slightly before or after other ranks, and
// joins at a random time. A joined rank must learn of the last round of each hash, and never of an
// earlier round after a later one. No edge may carry a proposal twice in one direction.
TEST_P(InvitationShapes, EveryJoinedRankLearnsOfEveryLastRoundInOrder) {
  constexpr std::uint64_t kKeys = 3, kRounds = 5;
  for (unsigned seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    Party party(GetParam());
    const int last = static_cast<int>(random() % static_cast<unsigned>(party.size()));
    std::map<std::pair<int, std::uint64_t>, std::uint64_t> begun, heard;
    const auto look = [&](int rank) {
      for (const Invitation& each : party.guest(rank).take_invitations()) {
        auto& next = heard[{rank, each.key.hash}];
        EXPECT_GE(each.key.round, next);
        next = each.key.round + 1;
      }
    };
    const auto is_over = [&] {
      for (std::uint64_t hash = 0; hash < kKeys; ++hash) {
        if (begun[{last, hash}] < kRounds) return false;
      }
      return true;
    };
    // When a rank hears that another rank has joined, it announces the rounds that it has begun.
    const auto tell = [&](int rank) {
      if (party.guest(rank).has_joined() || party.guest(rank).joined().empty()) return;
      for (std::uint64_t hash = 0; hash < kKeys; ++hash) {
        if (begun[{rank, hash}] > 0) party.invite(rank, ProposalKey{hash, begun[{rank, hash}] - 1});
      }
    };
    party.join((last + 1) % party.size());
    while (!is_over() || party.deliver(random)) {
      const int rank = static_cast<int>(random() % static_cast<unsigned>(party.size()));
      JoinAnnouncements& guest = party.guest(rank);
      party.deliver(random);
      if (guest.has_joined()) {
        look(rank);
      } else if (rank != last && random() % 16 == 0) {
        party.join(rank);
      } else {
        const std::uint64_t hash = random() % kKeys;
        std::uint64_t& round = begun[{rank, hash}];
        if (round == kRounds) continue;
        if (!guest.joined().empty()) party.invite(rank, ProposalKey{hash, round});
        ++round;
      }
      tell(rank);
    }
    for (int rank = 0; rank < party.size(); ++rank) tell(rank);
    party.deliver_all(random);
    for (int rank = 0; rank < party.size(); ++rank) {
      if (!party.guest(rank).has_joined()) continue;
      look(rank);
      for (std::uint64_t hash = 0; hash < kKeys; ++hash) {
        EXPECT_EQ((heard[{rank, hash}]), kRounds) << "rank " << rank << ", hash " << hash;
      }
    }
    for (const auto& [crossing, times] : party.crossings) EXPECT_EQ(times, 1);
  }
}

TEST_P(InvitationShapes, AllRanksCountWhoHasJoined) {
  Random random(1);
  Party party(GetParam());
  for (int rank = 0; rank < party.size(); ++rank) {
    party.join(rank);
    if (rank % 2 == 0) party.deliver(random);
  }
  party.deliver_all(random);
  for (int rank = 0; rank < party.size(); ++rank) {
    EXPECT_EQ(party.guest(rank).joined().size(), static_cast<std::size_t>(party.size()));
  }
}

TEST_P(InvitationShapes, DecliningReachesTheRootOncePerProposal) {
  Random random(2);
  Party party(GetParam());
  const ProposalKey key{7, 1}, other{8, 0};
  for (int rank = 0; rank < party.size(); ++rank) {
    party.decline(rank, key, "rank " + std::to_string(rank));
    party.decline(rank, key, "again");
  }
  party.decline(party.size() - 1, other, "too");
  party.deliver_all(random);
  EXPECT_THAT(party.rejected, ElementsAre(key, other));
  for (const auto& [crossing, times] : party.crossings) EXPECT_EQ(times, 1);
}

INSTANTIATE_TEST_SUITE_P(All, InvitationShapes,
                         ::testing::Values(std::vector{1, 1}, std::vector{2}, std::vector{5},
                                           std::vector{2, 3}, std::vector{1, 1, 1, 1, 1, 1},
                                           std::vector{3, 1, 4}));

// A rank that joins also learns of earlier rounds: the latest round of each hash, buckets first.
TEST(JoinAnnouncements, OfEarlierTimesComeWhenTheRankJoins) {
  Party party({2});
  Random random(3);
  party.join(0);
  party.deliver_all(random);
  const Invitation fresh{.key = {5, 2}, .text = "'x'", .terms = {std::byte{1}}};
  party.invite(1, fresh);
  party.invite(1, ProposalKey{bucket_hash(3), 0});
  party.invite(1, ProposalKey{bucket_hash(3), 1});
  EXPECT_THAT(party.guest(1).take_invitations(), IsEmpty());
  party.join(1);
  const auto invitations = party.guest(1).take_invitations();
  EXPECT_THAT(keys_of(invitations), ElementsAre(ProposalKey{bucket_hash(3), 1}, ProposalKey{5, 2}));
  EXPECT_EQ(invitations[1].text, "'x'");
  EXPECT_EQ(invitations[1].terms, fresh.terms);
  party.deliver_all(random);
  const auto others = party.guest(0).take_invitations();
  EXPECT_THAT(keys_of(others), ElementsAre(ProposalKey{5, 2}, ProposalKey{bucket_hash(3), 0},
                                           ProposalKey{bucket_hash(3), 1}));
  EXPECT_EQ(others[0].terms, fresh.terms);
}

TEST(JoinAnnouncements, BeginAnewWhenAllHaveJoined) {
  Party party({2});
  Random random(4);
  for (int rank = 0; rank < 2; ++rank) party.join(rank);
  party.deliver_all(random);
  for (int rank = 0; rank < 2; ++rank) party.guest(rank).end();
  EXPECT_EQ(party.guest(0).joined().size(), 0u);
  party.join(0);
  party.deliver_all(random);
  party.invite(1, ProposalKey{5, 0});
  party.deliver_all(random);
  EXPECT_THAT(keys_of(party.guest(0).take_invitations()), ElementsAre(ProposalKey{5, 0}));
}

TEST(JoinAnnouncements, FromOthersThanNeighboursAreStray) {
  const auto grid = ProcessGrid::with_node_sizes({1, 1, 1, 1});
  const CombiningTree tree = CombiningTree::build(1, grid, 2);  // parent 0, child 3
  JoinAnnouncements guest(tree);
  for (const FrameKind kind : {FrameKind::kJoined, FrameKind::kInvite, FrameKind::kDecline}) {
    EXPECT_FALSE(guest.receive(2, {.kind = kind}));
    EXPECT_TRUE(guest.receive(3, {.kind = kind}));
  }
  EXPECT_FALSE(guest.receive(0, {.kind = FrameKind::kDecline}));
  EXPECT_FALSE(guest.receive(0, {.kind = FrameKind::kPing}));
}

}  // namespace
}  // namespace kolo
