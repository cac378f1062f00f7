#include "comm/goals/sums.h"

#include <algorithm>
#include <map>
#include <utility>

namespace kolo {
namespace {

/// The rank that adds up what `contributor` contributes: that of the share, or for another node one
/// of its own contributors.
int adder_of(const Slices& slices, const SumShare& share, int contributor) {
  const ProcessGrid& grid = slices.grid();
  if (sums_in_one_place(slices.layout()) || grid.same_node(contributor, share.adder)) {
    return share.adder;
  }
  std::vector<int> peers;
  for (const int rank : grid.ranks_of_node(grid.node(contributor))) {
    if (share.contributes(rank)) peers.push_back(rank);
  }
  return peers[static_cast<std::size_t>(share.adder) % peers.size()];
}

/// The contribution of `from`, for `to` to add up.
std::size_t hand_over(Slices& slices, const Extent& piece, int from, int to) {
  if (slices.grid().same_node(from, to)) {
    return slices.add({.piece = piece, .holder = from, .readers = {to}});
  }
  slices.add({.piece = piece, .holder = from, .recipients = {to}});
  return slices.add({.piece = piece, .holder = to, .sender = from});
}

}  // namespace

bool sums_in_one_place(const BucketLayout& layout) {
  return is_16bit_float(layout.dtype) && layout.op != ReduceOp::kMin && layout.op != ReduceOp::kMax;
}

std::vector<std::vector<Addends>> hand_over(Slices& slices, const PieceRound& round) {
  std::map<std::pair<std::size_t, int>, std::size_t> handed;  // by share and contributor
  for (const Move& move : round.moves) {
    const SumShare& share = round.shares[move.share];
    if (!share.sums()) continue;
    const int adder = adder_of(slices, share, move.contributor);
    if (adder == move.contributor) continue;
    handed[{move.share, move.contributor}] =
        hand_over(slices, round.pieces[move.share], move.contributor, adder);
  }
  std::vector<std::vector<Addends>> result(round.shares.size());
  for (std::size_t i = 0; i < round.shares.size(); ++i) {
    const SumShare& share = round.shares[i];
    if (!share.sums() || round.pieces[i].count == 0) continue;
    for (const int contributor : share.contributors) {
      const int adder = adder_of(slices, share, contributor);
      auto at = std::ranges::find(result[i], adder, &Addends::adder);
      if (at == result[i].end()) at = result[i].insert(at, {.adder = adder, .slices = {}});
      const auto slice = handed.find({i, contributor});
      at->slices.push_back(slice == handed.end() ? std::nullopt
                                                 : std::make_optional(slice->second));
    }
  }
  return result;
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
