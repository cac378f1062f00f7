#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "comm/algorithms/host/collective_price.h"
#include "comm/algorithms/host/staged_plan.h"
#include "comm/algorithms/host/sums.h"
#include "comm/algorithms/registry.h"

namespace kolo {
namespace {

/// Number of pieces in a slot's memory, so that further pieces are ready when one is done.
constexpr std::size_t kPiecesInSlot = 8;

/// Slots per rank and round: a rank sends one piece and receives one piece.
constexpr std::size_t kSlotsOfMoves = 2;

/// Factor by which an all-to-all in rounds multiplies the loss of crowded links. A rank that is
/// ahead meets messages of the previous round at the link of its next peer, and has no other peer
/// meanwhile. Measured on four hosts with 16 MiB: 23 to 29 % above the time of the wire, `direct` 3
/// to 4 %.
constexpr double kLossOfRounds = 4;

// In round d each rank sends all pieces to the rank d positions ahead, and receives from the rank d
// positions back, before its next round. So a link has one peer at a time in each direction.
//
//   all-to-all, 4 ranks     0->1 1->2 2->3 3->0 | 0->2 1->3 2->0 3->1 | 0->3 1->0 2->1 3->2
//   scatter from 0          0->1                | 0->2                | 0->3
//
// Source: pairwise exchange, Thakur, Rabenseifner and Gropp, IJHPCA 2005.
void append_moves(StagedChunks& chunks, const PieceRound& round) {
  for (const Move& move : round.moves) {
    spread(chunks, {.piece = round.pieces[move.share], .holder = move.contributor},
           round.shares[move.share].receivers);
  }
}

// In round t, nodes whose numbers add up to t exchange the sums of their ranks' contributions. So a
// receiver adds the sums in node order as they are received, and holds one sum instead of n
// addends. Pieces can thus be large for any number of nodes. The next piece begins when slots are
// free.
//
//   3 nodes, a<b: sum of b for a     0<0 | 1<0 0<1 | 2<0 1<1 0<2 | 2<1 1<2 | 2<2
void append_sums(StagedChunks& chunks, const PieceRound& round) {
  const ProcessGrid& grid = chunks.grid();
  std::vector<std::optional<std::size_t>> sums(round.shares.size());
  for (int turn = 0; turn <= 2 * (grid.num_nodes() - 1); ++turn) {
    for (std::size_t i = 0; i < round.shares.size(); ++i) {
      const SumShare& share = round.shares[i];
      const Extent& piece = round.pieces[i];
      const int node = turn - grid.node(share.adder);
      if (piece.count == 0 || node < 0 || node >= grid.num_nodes()) continue;
      if (!chunks.concerns(node) && !chunks.concerns(grid.node(share.adder))) continue;
      const auto next =
          sum_of_node(chunks, piece, hand_over_of_node(chunks, share, piece, node), share.adder);
      StagedChunk sum{.piece = piece, .holder = share.adder, .addends = {sums[i], next}};
      if (node == 0) {
        sums[i] = next;
      } else if (node + 1 < grid.num_nodes()) {
        sum.is_addend = true;
        sums[i] = chunks.add(std::move(sum));
      } else {
        sum.finishes = true;
        spread(chunks, std::move(sum), share.receivers);
      }
    }
  }
}

/// Slots per rank. In a round a rank passes on one contribution or sum for each receiver of a node,
/// receives one sum, and adds it to the sum of the previous round. Slots of two rounds are in use
/// at a time; twice as many let the next rounds begin.
std::size_t slots_of_sums(const ProcessGrid& grid) {
  return 4 * (static_cast<std::size_t>(grid.largest_node()) + 2);
}

bool serves(const CompileContext& context) {
  const auto& [spec, layout, grid, options] = context;
  const bool has_pairs =
      spec.kind == CollectiveKind::kGather || spec.kind == CollectiveKind::kScatter ||
      spec.kind == CollectiveKind::kAllToAll ||
      (spec.kind == CollectiveKind::kReduceScatter && !sums_in_one_place(layout));
  return layout.is_in_tensors(MemoryKind::kHost) && grid.num_nodes() > 1 && has_pairs;
}

std::size_t piece_bytes(std::size_t bytes, const CompileOptions& options) {
  return std::max<std::size_t>(1, slot_bytes(bytes, options) / kPiecesInSlot);
}

double predict_sums_us(const HostLinks& links, const CollectiveSize& size, double piece) {
  const CollectivePrice price(links, size);
  const double pieces = std::max(1.0, price.part_bytes() / std::max(piece, 1.0));
  const double bytes = price.local() * price.part_bytes() / pieces;
  // The first and the last node send nothing in each other's rounds.
  const double turns = (price.nodes() - 1) * (pieces + 1);
  StageCost one = links.messages(2);
  one.link_us = one.one_way_us = price.link_us(bytes, true);
  one.processor_us += price.copies_us() / turns + links.memory().own_us(2 * bytes);
  return price.rounds_us(one, turns);
}

std::size_t best_sum_piece(const HostLinks& links, const CollectiveSize& size,
                           const CompileOptions& options) {
  return best_piece(
      slot_bytes(static_cast<std::size_t>(size.bytes), options) / slots_of_sums(links.grid()),
      size.bytes, [&](double piece) { return predict_sums_us(links, size, piece); });
}

void append(ScheduleBuilder& builder, const CompileContext& context) {
  if (context.spec.kind == CollectiveKind::kReduceScatter) {
    const CollectiveSize size = size_of(context);
    const HostLinks links(context.grid, context.options.link_costs, size.bytes);
    return append_staged_chunks(builder, context,
                                {.append_round = append_sums,
                                 .slots_in_turns = slots_of_sums(context.grid),
                                 .most_piece_bytes = best_sum_piece(links, size, context.options)});
  }
  append_staged_chunks(builder, context,
                       {.append_round = append_moves,
                        .by_distance = true,
                        .slots_in_turns = kSlotsOfMoves,
                        .most_piece_bytes = piece_bytes(context.layout.bytes(), context.options)});
}

double predict_us(const HostLinks& links, const CollectiveSize& size,
                  const CompileOptions& options) {
  if (size.kind == CollectiveKind::kReduceScatter) {
    const auto piece = static_cast<double>(best_sum_piece(links, size, options));
    return predict_sums_us(links, size, piece);
  }
  const CollectivePrice price(links, size);
  const auto piece =
      static_cast<double>(piece_bytes(static_cast<std::size_t>(size.bytes), options));
  const double pairs = price.ranks() - price.local();
  const double rounds = pairs * std::max(1.0, price.part_bytes() / piece);
  StageCost one = links.messages(price.direct_messages() / pairs);
  // A root handles one end of each message. The handling at the other end adds to the wait once.
  if (price.has_root()) one.wait_us += links.costs().network.message_us;
  const double bytes = price.direct_bytes();
  double link_us = price.link_us(bytes, false);
  if (size.kind == CollectiveKind::kAllToAll) {
    link_us += kLossOfRounds * (price.link_us(bytes, true) - price.link_us(bytes, false));
  }
  one.link_us = one.one_way_us = link_us / rounds;
  one.processor_us += price.copies_us() / rounds;
  return price.rounds_us(one, rounds);
}

constinit const CollectiveAlgorithm kPairwise(
    {.name = "pairwise", .serves = serves, .append = append, .predict_us = predict_us});

}  // namespace

constinit const Algorithm& algorithms::pairwise = kPairwise;
}  // namespace kolo
