#include "comm/coordinator/negotiator.h"

#include <gmock/gmock.h>

#include <deque>
#include <random>

#include "tests/support/node_shapes.h"

namespace kolo {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Lt;
using testing::SizeIs;

constexpr std::uint64_t kFingerprint = 42;

ProposalKey key(std::uint64_t number, std::uint64_t round = 0) { return {number + 1, round}; }

std::string name_of(const Frame& decision) {
  if (decision.kind == FrameKind::kAccept) {
    const std::string text =
        "accept " + std::to_string(decision.key.hash) + "." + std::to_string(decision.key.round);
    if (decision.least == decision.greatest) return text;
    return text + ": " + std::to_string(decision.least) + " to " +
           std::to_string(decision.greatest);
  }
  std::string text = "reject";
  for (const ProposalKey& t : decision.keys) {
    text += " " + std::to_string(t.hash) + "." + std::to_string(t.round);
  }
  return text + " " + decision.error.what;
}

/// The negotiators of a job, and the frames in flight between them. Frames between two ranks keep
/// their order; the seed determines everything else.
class Network {
 public:
  Network(ProcessGrid grid, std::uint64_t seed) : grid_(std::move(grid)), random_(seed) {
    for (int rank = 0; rank < size(); ++rank) {
      negotiators_.emplace_back(CombiningTree::build(rank, grid_));
    }
    decisions_.resize(negotiators_.size());
    released_.resize(negotiators_.size());
    conflicts_.resize(negotiators_.size());
  }

  int size() const { return grid_.world_size(); }
  const ProcessGrid& grid() const { return grid_; }
  std::mt19937_64& random() { return random_; }
  Negotiator& negotiator(int rank) { return negotiators_[static_cast<std::size_t>(rank)]; }

  void propose(int rank, const ProposalKey& t, std::uint64_t value = kFingerprint,
               Negotiator::Rule rule = Negotiator::Rule::kEqualValues) {
    negotiator(rank).propose(t, value, rule);
    collect(rank);
  }
  void mark_ready(int rank, const ProposalKey& t) {
    negotiator(rank).mark_ready(t);
    collect(rank);
  }
  void reject(const std::vector<ProposalKey>& keys, const Error& error) {
    negotiator(0).reject(keys, error);
    collect(0);
  }

  /// Delivers one frame of a random edge. Returns false if no frame is in flight.
  bool deliver_one() {
    if (tickets_.empty()) return false;
    std::swap(tickets_[random_() % tickets_.size()], tickets_.back());
    const auto edge = tickets_.back();
    tickets_.pop_back();
    deliver(edge);
    return true;
  }
  void deliver_all() {
    while (deliver_one()) {
    }
  }
  /// Delivers the frames in flight. Frames that are sent in response wait for the next step.
  bool deliver_step() {
    const auto edges = std::exchange(tickets_, {});
    for (const auto& edge : edges) deliver(edge);
    return !edges.empty();
  }

  const std::vector<std::string>& decisions(int rank) const {
    return decisions_[static_cast<std::size_t>(rank)];
  }
  const std::vector<ProposalKey>& released(int rank) const {
    return released_[static_cast<std::size_t>(rank)];
  }
  const std::vector<ProposalKey>& conflicts(int rank) const {
    return conflicts_[static_cast<std::size_t>(rank)];
  }
  std::size_t frames_sent() const { return frames_sent_; }
  std::size_t most_frames_from_one_rank() const {
    std::size_t most = 0;
    for (const auto& [rank, frames] : frames_from_) most = std::max(most, frames);
    return most;
  }

 private:
  using Edge = std::pair<int, int>;

  void deliver(const Edge& edge) {
    const Frame frame = std::move(wires_[edge].front());
    wires_[edge].pop_front();
    EXPECT_TRUE(negotiator(edge.second).receive(edge.first, frame));
    collect(edge.second);
  }

  void collect(int rank) {
    const auto index = static_cast<std::size_t>(rank);
    for (auto& outgoing : negotiators_[index].take_outgoing()) {
      const Edge edge{rank, outgoing.peer};
      wires_[edge].push_back(std::move(outgoing.frame));
      tickets_.push_back(edge);
      ++frames_sent_;
      ++frames_from_[rank];
    }
    for (const Frame& decision : negotiators_[index].take_decisions()) {
      decisions_[index].push_back(name_of(decision));
    }
    for (const ProposalKey& t : negotiators_[index].take_released()) released_[index].push_back(t);
    for (const ProposalKey& t : negotiators_[index].take_conflicts())
      conflicts_[index].push_back(t);
  }

  ProcessGrid grid_;
  std::mt19937_64 random_;
  std::vector<Negotiator> negotiators_;
  std::map<Edge, std::deque<Frame>> wires_;
  std::vector<Edge> tickets_;  // one per frame in flight
  std::vector<std::vector<std::string>> decisions_;
  std::vector<std::vector<ProposalKey>> released_, conflicts_;
  std::size_t frames_sent_ = 0;
  std::map<int, std::size_t> frames_from_;
};

void expect_equal_decisions(const Network& network) {
  for (int rank = 1; rank < network.size(); ++rank) {
    EXPECT_EQ(network.decisions(rank), network.decisions(0)) << "rank " << rank;
  }
}

std::size_t edges(const Network& network) { return static_cast<std::size_t>(network.size() - 1); }

class Negotiators : public testing::TestWithParam<std::vector<int>> {
 protected:
  static constexpr std::uint64_t kSeeds = 20;

  /// Runs `body` on a new network for each of many delivery orders.
  void for_each_order(const std::function<void(Network&)>& body) {
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
      SCOPED_TRACE(test::shape_text(GetParam()) + ", seed " + std::to_string(seed));
      Network network(ProcessGrid::with_node_sizes(GetParam()), seed);
      body(network);
    }
  }

  /// Makes every rank propose `count` proposals in its own order, between deliveries.
  void propose_all(Network& network, std::uint64_t count, std::uint64_t round = 0) {
    std::vector<std::pair<int, ProposalKey>> proposals;
    for (int rank = 0; rank < network.size(); ++rank) {
      for (std::uint64_t i = 0; i < count; ++i) proposals.emplace_back(rank, key(i, round));
    }
    std::shuffle(proposals.begin(), proposals.end(), network.random());
    for (const auto& [rank, proposed] : proposals) {
      network.propose(rank, proposed);
      while (network.random()() % 2 == 0 && network.deliver_one()) {
      }
    }
    network.deliver_all();
  }
};

TEST_P(Negotiators, AcceptOnceInOneOrderForOneFrameUpAndOneDownPerEdge) {
  for_each_order([&](Network& network) {
    constexpr std::uint64_t kProposals = 6;
    propose_all(network, kProposals);
    expect_equal_decisions(network);
    std::vector<std::string> sorted = network.decisions(0);
    std::sort(sorted.begin(), sorted.end());
    EXPECT_THAT(sorted, ElementsAre("accept 1.0", "accept 2.0", "accept 3.0", "accept 4.0",
                                    "accept 5.0", "accept 6.0"));
    EXPECT_EQ(network.frames_sent(), kProposals * 2 * edges(network));
    propose_all(network, kProposals, 1);
    expect_equal_decisions(network);
    EXPECT_THAT(network.decisions(0), SizeIs(2 * kProposals));
    EXPECT_EQ(network.frames_sent(), 2 * kProposals * 2 * edges(network));
  });
}

TEST_P(Negotiators, WaitForAStragglerWithoutAFrame) {
  for_each_order([&](Network& network) {
    const int late = static_cast<int>(network.random()() % static_cast<unsigned>(network.size()));
    for (int rank = 0; rank < network.size(); ++rank) {
      if (rank != late) network.propose(rank, key(0));
    }
    network.deliver_all();
    for (int rank = 0; rank < network.size(); ++rank) {
      EXPECT_THAT(network.decisions(rank), IsEmpty());
    }
    EXPECT_LE(network.frames_sent(), edges(network));
    network.propose(late, key(0));
    network.deliver_all();
    EXPECT_THAT(network.decisions(0), ElementsAre("accept 1.0"));
    expect_equal_decisions(network);
  });
}

TEST_P(Negotiators, ReportAConflictToTheRootAloneAndRejectItEverywhere) {
  for_each_order([&](Network& network) {
    if (network.size() == 1) return;
    const int odd = static_cast<int>(network.random()() % static_cast<unsigned>(network.size()));
    for (int rank = 0; rank < network.size(); ++rank) {
      network.propose(rank, key(0), rank == odd ? kFingerprint + 1 : kFingerprint);
      network.propose(rank, key(1));
    }
    network.deliver_all();
    EXPECT_THAT(network.conflicts(0), ElementsAre(key(0)));
    for (int rank = 1; rank < network.size(); ++rank) {
      EXPECT_THAT(network.conflicts(rank), IsEmpty());
    }
    EXPECT_THAT(network.decisions(0), ElementsAre("accept 2.0"));

    network.reject({key(0)}, {.code = ErrorCode::kMismatch, .what = "differs"});
    network.deliver_all();
    EXPECT_THAT(network.decisions(0), ElementsAre("accept 2.0", "reject 1.0 differs"));
    expect_equal_decisions(network);

    propose_all(network, 1, 1);
    EXPECT_THAT(network.decisions(0).back(), "accept 1.1");
    expect_equal_decisions(network);
  });
}

// A rank proposes a key while the rejection of that key is on its path down the tree.
TEST_P(Negotiators, OutliveProposalsThatCrossTheirReject) {
  for_each_order([&](Network& network) {
    for (int rank = 0; rank < network.size(); ++rank) {
      if (rank % 2 == 0) network.propose(rank, key(0));
    }
    network.deliver_all();
    if (!network.decisions(0).empty()) return;  // with one rank there is no other frame
    network.reject({key(0)}, {.code = ErrorCode::kMismatch, .what = "circle"});
    for (int rank = network.size() - 1; rank > 0; --rank) {
      if (rank % 2 == 1 && network.decisions(rank).empty()) network.propose(rank, key(0));
      network.deliver_one();
    }
    network.deliver_all();
    EXPECT_THAT(network.decisions(0), ElementsAre("reject 1.0 circle"));
    expect_equal_decisions(network);
    EXPECT_THAT(network.conflicts(0), IsEmpty());
    propose_all(network, 1, 1);
    EXPECT_THAT(network.decisions(0), ElementsAre("reject 1.0 circle", "accept 1.1"));
    expect_equal_decisions(network);
  });
}

TEST_P(Negotiators, ReleaseArrivalsAlongLeadersOnly) {
  for_each_order([&](Network& network) {
    constexpr std::uint64_t kRounds = 3;
    const auto nodes = static_cast<std::size_t>(network.grid().num_nodes());
    const std::vector<ProposalKey> buckets = {key(0), key(1), key(2)};
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      std::vector<std::pair<int, ProposalKey>> arrivals;
      for (int node = 0; node < network.grid().num_nodes(); ++node) {
        for (const ProposalKey& bucket : buckets) {
          arrivals.emplace_back(network.grid().leader(node), ProposalKey{bucket.hash, round});
        }
      }
      std::shuffle(arrivals.begin(), arrivals.end(), network.random());
      for (std::size_t i = 0; i < arrivals.size(); ++i) {
        if (i + 1 == arrivals.size()) {
          network.deliver_all();
          EXPECT_THAT(network.released(0), SizeIs(Lt(buckets.size() * (round + 1))));
        }
        network.mark_ready(arrivals[i].first, arrivals[i].second);
      }
      network.deliver_all();
      for (int rank = 0; rank < network.size(); ++rank) {
        const bool leads = network.grid().leader(network.grid().node(rank)) == rank;
        EXPECT_THAT(network.released(rank), SizeIs(leads ? buckets.size() * (round + 1) : 0));
      }
      EXPECT_EQ(network.frames_sent(), (round + 1) * buckets.size() * 2 * (nodes - 1));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Shapes, Negotiators,
                         testing::Values(std::vector<int>{1}, std::vector<int>{2},
                                         std::vector<int>{5}, std::vector<int>{1, 1},
                                         std::vector<int>{3, 1, 2}, std::vector<int>(4, 2),
                                         std::vector<int>(11, 1), std::vector<int>(20, 3)));

// The votes come in any order, with the root first or last.
TEST_P(Negotiators, AVoteTellsAllTheLeastAndTheGreatestWord) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    Network network(ProcessGrid::with_node_sizes(GetParam()), seed);
    std::vector<int> ranks(static_cast<std::size_t>(network.size()));
    for (int rank = 0; rank < network.size(); ++rank) ranks[static_cast<std::size_t>(rank)] = rank;
    std::shuffle(ranks.begin(), ranks.end(), network.random());
    for (int rank : ranks) {
      EXPECT_THAT(network.decisions(0), IsEmpty());
      network.propose(rank, key(0), 100 + static_cast<std::uint64_t>(rank),
                      Negotiator::Rule::kAnyValues);
      while (network.random()() % 2 == 0 && network.deliver_one()) {
      }
    }
    network.deliver_all();
    const std::string last = std::to_string(100 + network.size() - 1);
    const std::string expected = network.size() == 1 ? "accept 1.0" : "accept 1.0: 100 to " + last;
    for (int rank = 0; rank < network.size(); ++rank) {
      EXPECT_THAT(network.decisions(rank), ElementsAre(expected)) << "seed " << seed;
      EXPECT_THAT(network.conflicts(rank), IsEmpty());
    }
  }
}

// The last rank proposes a value that differs from 41 in the hint only, or in other bits too.
TEST_P(Negotiators, AHintIsTheLowestBit) {
  for (const std::uint64_t other : {40u, 43u}) {
    Network network(ProcessGrid::with_node_sizes(GetParam()), other);
    const int last = network.size() - 1;
    for (int rank = 0; rank <= last; ++rank) {
      network.propose(rank, key(0), rank == last && rank > 0 ? other : 41,
                      Negotiator::Rule::kEqualButLowestBit);
    }
    network.deliver_all();
    const bool is_accepted = other == 40 || last == 0;
    const std::string expected = last == 0 ? "accept 1.0" : "accept 1.0: 40 to 41";
    for (int rank = 0; rank <= last && is_accepted; ++rank) {
      EXPECT_THAT(network.decisions(rank), ElementsAre(expected));
    }
    EXPECT_THAT(network.conflicts(0), SizeIs(is_accepted ? 0 : 1));
  }
}

// On nodes {0 1} {2 3}, the parent of rank 2 is rank 0, and the parent of rank 3 is rank 2.
TEST(Negotiator, RefusesWhatAPeerHasNoBusinessSending) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes({2, 2});
  Negotiator root(CombiningTree::build(0, grid));
  Negotiator leader(CombiningTree::build(2, grid));
  Negotiator leaf(CombiningTree::build(3, grid));
  const auto frame = [](FrameKind kind) { return Frame{.kind = kind, .key = key(0)}; };

  EXPECT_FALSE(root.receive(3, frame(FrameKind::kPropose)));  // not its child
  EXPECT_FALSE(leaf.receive(2, frame(FrameKind::kPropose)));  // from its parent
  EXPECT_FALSE(root.receive(1, frame(FrameKind::kArrive)));   // from a child that is no leader
  EXPECT_FALSE(leader.receive(3, frame(FrameKind::kArrive)));
  EXPECT_FALSE(leader.receive(0, frame(FrameKind::kArrive)));
  for (FrameKind down : {FrameKind::kAccept, FrameKind::kReject, FrameKind::kRelease}) {
    EXPECT_FALSE(root.receive(1, frame(down)));  // from a child
    EXPECT_FALSE(leader.receive(3, frame(down)));
    EXPECT_FALSE(leaf.receive(0, frame(down)));  // from the parent of its parent
  }
  for (FrameKind other : {FrameKind::kStalled, FrameKind::kQuery, FrameKind::kReport,
                          FrameKind::kPing, FrameKind::kPong, FrameKind::kFail}) {
    EXPECT_FALSE(root.receive(1, frame(other)));
    EXPECT_FALSE(leader.receive(0, frame(other)));
  }
  for (Negotiator* negotiator : {&root, &leader, &leaf}) {
    EXPECT_THAT(negotiator->take_outgoing(), IsEmpty());
    EXPECT_THAT(negotiator->take_decisions(), IsEmpty());
    EXPECT_THAT(negotiator->take_released(), IsEmpty());
  }
}

// Agreement takes one trip up and one down a tree whose width is limited by node size and arity.
TEST(Negotiator, ScalesTo4096RanksOn512Nodes) {
  constexpr int kNodes = 512, kLocal = 8;
  Network network(ProcessGrid::with_node_sizes(std::vector<int>(kNodes, kLocal)), 1);
  for (int rank = 0; rank < network.size(); ++rank) network.propose(rank, key(0));
  std::size_t steps = 0;
  while (network.deliver_step()) ++steps;
  EXPECT_THAT(network.decisions(0), ElementsAre("accept 1.0"));
  expect_equal_decisions(network);
  EXPECT_EQ(network.frames_sent(), 2 * edges(network));
  EXPECT_EQ(steps, 2u * (3 + 1));  // three levels of nodes below the root, and one inside a node
  EXPECT_LE(network.most_frames_from_one_rank(),
            static_cast<std::size_t>(CombiningTree::kDefaultArity + kLocal - 1 + 1));

  for (int node = 0; node < kNodes; ++node) network.mark_ready(node * kLocal, key(1));
  for (steps = 0; network.deliver_step();) ++steps;
  EXPECT_THAT(network.released((kNodes - 1) * kLocal), ElementsAre(key(1)));
  EXPECT_EQ(network.frames_sent(), 2 * edges(network) + 2 * (kNodes - 1));
  EXPECT_EQ(steps, 2u * 3);
}

}  // namespace
}  // namespace kolo
