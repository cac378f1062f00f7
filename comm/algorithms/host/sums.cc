#include "comm/algorithms/host/sums.h"

#include <algorithm>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

namespace kolo {
namespace {

/// The rank that sums the contributions of the ranks of `node`: the share's adder, or on another
/// node one of the contributors if nodes make sums. Before: some rank of the node contributes.
int adder_of_node(const StagedChunks& chunks, const SumShare& share, int node) {
  const ProcessGrid& grid = chunks.grid();
  if (sums_in_one_place(chunks.layout()) || node == grid.node(share.adder)) return share.adder;
  const std::span<const int> peers = members_of(grid, node, share.contributors);
  return peers[static_cast<std::size_t>(share.adder) % peers.size()];
}

/// Adds the chunks that pass the contribution of `from` to `to`. Returns its index as an addend.
std::size_t hand_over(StagedChunks& chunks, const Extent& piece, int from, int to) {
  const bool is_near = chunks.grid().same_node(from, to);
  std::size_t handed = chunks.kept().size();
  if (!chunks.keeps(from)) {
    chunks.count(piece, from);
  } else if (is_near) {
    handed = chunks.add({.piece = piece, .holder = from, .readers = {to}});
  } else {
    chunks.add({.piece = piece, .holder = from, .recipients = {to}});
  }
  if (is_near) return handed;
  if (chunks.keeps(to)) return chunks.add({.piece = piece, .holder = to, .sender = from});
  chunks.count(piece, to);
  return chunks.kept().size();
}

/// A contribution that `adder` sums. `chunk` is set if another rank contributes it.
struct Handed {
  std::size_t share = 0;
  int group = 0;  ///< Node of the contributor; 0 if each sum is made in one place.
  int contributor = 0;
  int adder = 0;
  std::optional<std::size_t> chunk = {};
};

}  // namespace

bool sums_in_one_place(const BucketLayout& layout) {
  // On a device, staged elements are packed without a cast.
  const bool is_cast = layout.placement == Placement::kStaged && !layout.is_on_device();
  return !is_cast && layout.rounds();
}

std::vector<std::vector<Addends>> hand_over(StagedChunks& chunks, const PieceRound& round) {
  const bool is_one_group = sums_in_one_place(chunks.layout());
  std::vector<Handed> all;
  for (const Move& move : round.moves) {
    const SumShare& share = round.shares[move.share];
    if (!share.sums()) continue;
    const int node = chunks.grid().node(move.contributor);
    Handed next{.share = move.share,
                .group = is_one_group ? 0 : node,
                .contributor = move.contributor,
                .adder = adder_of_node(chunks, share, node)};
    if (next.adder != move.contributor) {
      next.chunk = hand_over(chunks, round.pieces[move.share], move.contributor, next.adder);
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
      groups.push_back({.adder = each.adder, .chunks = {}});
    }
    groups.back().chunks.push_back(each.chunk);
  }
  return result;
}

Addends hand_over_of_node(StagedChunks& chunks, const SumShare& share, const Extent& piece,
                          int node) {
  Addends addends{.adder = adder_of_node(chunks, share, node), .chunks = {}};
  for (const int contributor : members_of(chunks.grid(), node, share.contributors)) {
    addends.chunks.push_back(
        contributor == addends.adder
            ? std::nullopt
            : std::make_optional(hand_over(chunks, piece, contributor, addends.adder)));
  }
  return addends;
}

std::optional<std::size_t> sum_of_node(StagedChunks& chunks, const Extent& piece,
                                       const Addends& addends, int recipient) {
  const bool is_one = addends.chunks.size() == 1;
  if (recipient == addends.adder) {
    if (is_one) return addends.chunks.front();
    return chunks.add(
        {.piece = piece, .holder = addends.adder, .addends = addends.chunks, .is_addend = true});
  }
  StagedChunk sum{.piece = piece, .holder = addends.adder, .recipients = {recipient}};
  if (!is_one) sum.addends = addends.chunks;
  chunks.add(std::move(sum));
  return chunks.add({.piece = piece, .holder = recipient, .sender = addends.adder});
}

}  // namespace kolo
