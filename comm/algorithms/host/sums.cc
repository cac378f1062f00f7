#include "comm/algorithms/host/sums.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

namespace kolo {
namespace {

/// The rank that adds up what the ranks of `node` contribute to the share: that of the share, or on
/// another node one of these. Before: some rank of the node contributes.
int adder_of_node(const Slices& slices, const SumShare& share, int node) {
  const ProcessGrid& grid = slices.grid();
  if (sums_in_one_place(slices.layout()) || node == grid.node(share.adder)) return share.adder;
  std::vector<int> peers;
  for (const int rank : grid.ranks_of_node(node)) {
    if (share.contributes(rank)) peers.push_back(rank);
  }
  return peers[static_cast<std::size_t>(share.adder) % peers.size()];
}

/// The same for all nodes, each looked up once.
class Adders {
 public:
  /// Both outlive it.
  Adders(const Slices& slices, const SumShare& share)
      : slices_(slices),
        share_(share),
        of_node_(static_cast<std::size_t>(slices.grid().num_nodes()), kUnknown) {}

  int of(int contributor) {
    const int node = slices_.grid().node(contributor);
    int& adder = of_node_[static_cast<std::size_t>(node)];
    if (adder == kUnknown) adder = adder_of_node(slices_, share_, node);
    return adder;
  }

 private:
  static constexpr int kUnknown = -1;

  const Slices& slices_;
  const SumShare& share_;
  std::vector<int> of_node_;
};

/// The contribution of `from`, for `to` to add up.
std::size_t hand_over(Slices& slices, const Extent& piece, int from, int to) {
  const bool is_near = slices.grid().same_node(from, to);
  std::size_t handed = slices.kept().size();
  if (!slices.keeps(from)) {
    slices.count(piece, from);
  } else if (is_near) {
    handed = slices.add({.piece = piece, .holder = from, .readers = {to}});
  } else {
    slices.add({.piece = piece, .holder = from, .recipients = {to}});
  }
  if (is_near) return handed;
  if (slices.keeps(to)) return slices.add({.piece = piece, .holder = to, .sender = from});
  slices.count(piece, to);
  return slices.kept().size();
}

/// The slices of contributions, by share; none of one that stays where it is.
class Handed {
 public:
  explicit Handed(std::span<const SumShare> shares) : shares_(shares), slices_(shares.size()) {}

  std::optional<std::size_t>& of(std::size_t share, int contributor) {
    const std::vector<int>& contributors = shares_[share].contributors;
    auto& slices = slices_[share];
    if (slices.empty()) slices.resize(contributors.size());
    const auto at = std::ranges::lower_bound(contributors, contributor);
    return slices[static_cast<std::size_t>(at - contributors.begin())];
  }

 private:
  std::span<const SumShare> shares_;
  std::vector<std::vector<std::optional<std::size_t>>> slices_;
};

/// That of `adder` in `all`. Contributors of one node mostly come one after another.
Addends& addends_of(std::vector<Addends>& all, int adder) {
  if (!all.empty() && all.back().adder == adder) return all.back();
  const auto at = std::ranges::find(all, adder, &Addends::adder);
  return at != all.end() ? *at : all.emplace_back(Addends{.adder = adder, .slices = {}});
}

}  // namespace

bool sums_in_one_place(const BucketLayout& layout) {
  // On a device, staged elements are packed as they are.
  const bool is_cast = layout.placement == Placement::kStaged && !layout.is_on_device();
  return !is_cast && is_16bit_float(layout.dtype) && layout.op != ReduceOp::kMin &&
         layout.op != ReduceOp::kMax;
}

std::vector<std::vector<Addends>> hand_over(Slices& slices, const PieceRound& round) {
  std::vector<std::optional<Adders>> adders(round.shares.size());
  for (std::size_t i = 0; i < round.shares.size(); ++i) {
    if (round.shares[i].sums() && round.pieces[i].count > 0) {
      adders[i].emplace(slices, round.shares[i]);
    }
  }
  Handed handed(round.shares);
  for (const Move& move : round.moves) {
    if (!adders[move.share]) continue;
    const int adder = adders[move.share]->of(move.contributor);
    if (adder == move.contributor) continue;
    handed.of(move.share, move.contributor) =
        hand_over(slices, round.pieces[move.share], move.contributor, adder);
  }
  std::vector<std::vector<Addends>> result(round.shares.size());
  for (std::size_t i = 0; i < round.shares.size(); ++i) {
    if (!adders[i]) continue;
    for (const int contributor : round.shares[i].contributors) {
      addends_of(result[i], adders[i]->of(contributor)).slices.push_back(handed.of(i, contributor));
    }
  }
  return result;
}

Addends hand_over_of_node(Slices& slices, const SumShare& share, const Extent& piece, int node) {
  Addends addends;
  for (const int contributor : slices.grid().ranks_of_node(node)) {
    if (!share.contributes(contributor)) continue;
    if (addends.slices.empty()) addends.adder = adder_of_node(slices, share, node);
    addends.slices.push_back(
        contributor == addends.adder
            ? std::nullopt
            : std::make_optional(hand_over(slices, piece, contributor, addends.adder)));
  }
  return addends;
}

std::optional<std::size_t> sum_of_node(Slices& slices, const Extent& piece, const Addends& addends,
                                       int recipient) {
  const bool is_one = addends.slices.size() == 1;
  if (recipient == addends.adder) {
    if (is_one) return addends.slices.front();
    return slices.add(
        {.piece = piece, .holder = addends.adder, .addends = addends.slices, .is_addend = true});
  }
  Slice sum{.piece = piece, .holder = addends.adder, .recipients = {recipient}};
  if (!is_one) sum.addends = addends.slices;
  slices.add(std::move(sum));
  return slices.add({.piece = piece, .holder = recipient, .sender = addends.adder});
}

}  // namespace kolo
