#include <algorithm>

#include "comm/goals/goal_price.h"
#include "comm/goals/slice_plan.h"

namespace kolo {
namespace {

/// Pieces in flight between a pair of ranks, so that the next are there when one is done.
constexpr std::size_t kPiecesInSlot = 8;

// In round d each rank sends to the rank d places on and receives from the one d places back, all
// pieces, before the next round begins. So a link has one peer at a time in each direction.
//
//   all-to-all, 4 ranks     0->1 1->2 2->3 3->0 | 0->2 1->3 2->0 3->1 | 0->3 1->0 2->1 3->2
//   scatter from 0          0->1                | 0->2                | 0->3
//
// Source: pairwise exchange, Thakur, Rabenseifner and Gropp, IJHPCA 2005.
void append_round(Slices& slices, const PieceRound& round) {
  for (const Move& move : round.moves) {
    spread(slices, {.piece = round.pieces[move.share], .holder = move.contributor},
           round.shares[move.share].receivers);
  }
}

bool serves(const Goal& goal, const BucketLayout& layout, const ProcessGrid& grid) {
  const bool has_pairs = goal.kind == GoalKind::kGather || goal.kind == GoalKind::kScatter ||
                         goal.kind == GoalKind::kAllToAll;
  return layout.is_in_tensors(MemoryKind::kHost) && grid.num_nodes() > 1 && has_pairs;
}

std::size_t piece_bytes(std::size_t bytes, const CompileOptions& options) {
  return std::max<std::size_t>(1, slot_bytes(bytes, options) / kPiecesInSlot);
}

void append(ScheduleBuilder& builder, const Goal& goal, const GoalContext& context) {
  append_slices(builder, goal, context,
                {.append_round = append_round,
                 .by_distance = true,
                 .most_piece_bytes = piece_bytes(builder.layout().bytes(), context.options)});
}

double predict_us(const HostLinks& links, const GoalSize& size, const CompileOptions& options) {
  const GoalPrice price(links, size);
  const auto piece =
      static_cast<double>(piece_bytes(static_cast<std::size_t>(size.bytes), options));
  const double pairs = price.ranks() - price.local();
  const double rounds = pairs * std::max(1.0, price.part_bytes() / piece);
  Passage one = links.messages(price.direct_messages() / pairs);
  one.link_us = one.one_way_us = price.link_us(price.direct_bytes(), false) / rounds;
  one.processor_us += price.copies_us() / rounds;
  return price.rounds_us(one, rounds);
}

}  // namespace

constinit const GoalAlgorithm goal_algorithms::pairwise{
    .name = "pairwise", .serves = serves, .append = append, .predict_us = predict_us};

}  // namespace kolo
