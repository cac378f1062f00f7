#include "comm/algorithms/host/sums.h"

#include <algorithm>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

namespace kolo {
namespace {

/// The rank that sums the contributions of the ranks of `node` to the share: the share's adder, or
/// on another node one of the contributors. Before: some rank of the node contributes.
int adder_of_node(const Slices& slices, const SumShare& share, int node) {
  const ProcessGrid& grid = slices.grid();
  if (sums_in_one_place(slices.layout()) || node == grid.node(share.adder)) return share.adder;
  const std::span<const int> peers = members_of(grid, node, share.contributors);
  return peers[static_cast<std::size_t>(share.adder) % peers.size()];
}

/// Hands the contribution of `from` to `to` for summing.
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

/// A contribution, and its slice unless it stays where it is.
struct Handed {
  std::size_t share = 0;
  int group = 0;  ///< Contributions summed by one rank form a group: their node, if nodes make
                  ///< sums.
  int contributor = 0;
  int adder = 0;
  std::optional<std::size_t> slice = {};
};

}  // namespace

bool sums_in_one_place(const BucketLayout& layout) {
  // On a device, staged elements are packed without a cast.
  const bool is_cast = layout.placement == Placement::kStaged && !layout.is_on_device();
  return !is_cast && layout.rounds();
}

std::vector<std::vector<Addends>> hand_over(Slices& slices, const PieceRound& round) {
  const bool is_one_group = sums_in_one_place(slices.layout());
  std::vector<Handed> all;
  for (const Move& move : round.moves) {
    const SumShare& share = round.shares[move.share];
    if (!share.sums()) continue;
    const int node = slices.grid().node(move.contributor);
    Handed next{.share = move.share,
                .group = is_one_group ? 0 : node,
                .contributor = move.contributor,
                .adder = adder_of_node(slices, share, node)};
    if (next.adder != move.contributor) {
      next.slice = hand_over(slices, round.pieces[move.share], move.contributor, next.adder);
    }
    all.push_back(next);
  }
  std::ranges::sort(all, {}, [](const Handed& each) {
    return std::tuple(each.share, each.group, each.contributor);
  });
  std::vector<std::vector<Addends>> result(round.shares.size());
  for (const Handed& each : all) {
    std::vector<Addends>& groups = result[each.share];
    if (groups.empty() || groups.back().adder != each.adder) {
      groups.push_back({.adder = each.adder, .slices = {}});
    }
    groups.back().slices.push_back(each.slice);
  }
  return result;
}

Addends hand_over_of_node(Slices& slices, const SumShare& share, const Extent& piece, int node) {
  Addends addends{.adder = adder_of_node(slices, share, node), .slices = {}};
  for (const int contributor : members_of(slices.grid(), node, share.contributors)) {
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
