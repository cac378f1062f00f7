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

// A piece is passed from node to node, so that a node receives from one node and sends to one node.
// Pieces are pipelined, so the total time approaches the time of the bytes.
//
//   all-gather, 4 nodes     0 -> 1 -> 2 -> 3     1 -> 2 -> 3 -> 0     2 -> 3 -> 0 -> 1   ...
//   broadcast from 1        1 -> 2 -> 3 -> 0
//   reduce to 1             0 -> 1 -> 2 -> 3 -> 1: partial sums, in node order
//
// Source: all-gather as in Thakur, Rabenseifner and Gropp, IJHPCA 2005; broadcast as the pipelined
// chain of Traeff and Ripke, JPDC 2008.
std::vector<StagedChunk> chain(const StagedChunks& chunks, const Extent& piece, const Move& move,
                               const RankRange& receivers) {
  const ProcessGrid& grid = chunks.grid();
  const int own = grid.node(move.contributor);
  std::vector<StagedChunk> links{{.piece = piece,
                                  .holder = move.contributor,
                                  .readers = others_of(grid, own, receivers, move.contributor),
                                  .to_readers = true,
                                  .to_holder = receivers.contains(move.contributor)}};
  const auto append = [&](int, StagedChunk::Ranks members) {
    links.push_back(relay(piece, move.contributor, links.back().holder, std::move(members)));
    links[links.size() - 2].recipients = {links.back().holder};
  };
  for_each_other_node(grid, own, receivers, move.contributor, append);
  return links;
}

void append_moves(StagedChunks& chunks, const PieceRound& round) {
  struct Hop {
    std::size_t number = 0;
    StagedChunk chunk;
  };
  std::vector<Hop> hops;  // hops of kept chunks
  for (const Move& move : round.moves) {
    const SumShare& share = round.shares[move.share];
    if (share.sums()) continue;
    std::vector<StagedChunk> links = chain(chunks, round.pieces[move.share], move, share.receivers);
    for (std::size_t number = 0; number < links.size(); ++number) {
      if (chunks.keeps(links[number].holder)) {
        hops.push_back({number, std::move(links[number])});
      } else {
        chunks.add(std::move(links[number]));
      }
    }
  }
  // Sorted by hop, so that a node first forwards the piece that it received first.
  std::ranges::stable_sort(hops, {}, &Hop::number);
  for (Hop& hop : hops) chunks.add(std::move(hop.chunk));
}

void append_sum(StagedChunks& chunks, const SumShare& share, const Extent& piece) {
  std::vector<Addends> nodes;
  for (int node = 0; node < chunks.grid().num_nodes(); ++node) {
    if (members_of(chunks.grid(), node, share.contributors).empty()) continue;
    nodes.push_back(hand_over_of_node(chunks, share, piece, node));
  }
  StagedChunk sum{.piece = piece, .holder = nodes.back().adder, .finishes = true};
  if (nodes.size() == 1) sum.addends = nodes.front().chunks;
  for (std::size_t i = 1; i < nodes.size(); ++i) {
    const int here = nodes[i].adder;
    if (i == 1) sum.addends = {sum_of_node(chunks, piece, nodes[0], here)};
    sum.addends.push_back(sum_of_node(chunks, piece, nodes[i], here));
    if (i + 1 == nodes.size()) break;
    chunks.add({.piece = piece,
                .holder = here,
                .addends = std::exchange(sum.addends, {}),
                .recipients = {nodes[i + 1].adder}});
    sum.addends = {chunks.add({.piece = piece, .holder = nodes[i + 1].adder, .sender = here})};
  }
  spread(chunks, std::move(sum), share.receivers);
}

void append_round(StagedChunks& chunks, const PieceRound& round) {
  append_moves(chunks, round);
  for (std::size_t i = 0; i < round.shares.size(); ++i) {
    const bool is_summed = round.shares[i].sums() && round.pieces[i].count > 0;
    if (is_summed) append_sum(chunks, round.shares[i], round.pieces[i]);
  }
}

double predict_us(const HostLinks& links, const CollectiveSize& size, double piece) {
  const CollectivePrice price(links, size);
  const double rounds = std::max(1.0, price.part_bytes() / std::max(piece, 1.0));
  const double bytes = price.part_bytes() / rounds;
  const bool gathers = size.kind == CollectiveKind::kAllGather;
  // The last node of the ring sends the sum to the root, which is rarely the same node.
  const double hops = price.nodes() - (size.kind == CollectiveKind::kReduce ? 0 : 1);
  StageCost one = gathers ? hops * links.messages(2) : hops * links.message_pair(1);
  one.link_us = hops * links.link_us(bytes * (gathers ? price.local() : 1));
  one.one_way_us = gathers ? one.link_us : one.link_us / hops;
  if (!gathers) {  // The hops of a piece are sequential and overlap with hops of later pieces.
    const double pace_us = links.messages(2).processor_us;
    one.wait_us += std::max(0.0, one.processor_us - pace_us);
    one.processor_us = pace_us;
  }
  one.processor_us += price.copies_us() / rounds;
  one.wait_us += price.handed_on_us();
  return price.rounds_us(one, rounds);
}

std::size_t ring_piece(const HostLinks& links, const CollectiveSize& size,
                       const CompileOptions& options) {
  return best_piece(slot_bytes(static_cast<std::size_t>(size.bytes), options), size.bytes,
                    [&](double piece) { return predict_us(links, size, piece); });
}

bool serves(const CompileContext& context) {
  const auto& [spec, layout, grid, options] = context;
  const bool moves =
      spec.kind == CollectiveKind::kAllGather || spec.kind == CollectiveKind::kBroadcast;
  const bool sums = spec.kind == CollectiveKind::kReduce && !sums_in_one_place(layout);
  return layout.is_in_tensors(MemoryKind::kHost) && grid.num_nodes() > 1 && (moves || sums);
}

void append(ScheduleBuilder& builder, const CompileContext& context) {
  const CollectiveSize size = size_of(context);
  const HostLinks links(context.grid, context.options.link_costs, size.bytes);
  append_staged_chunks(
      builder, context,
      {.append_round = append_round, .most_piece_bytes = ring_piece(links, size, context.options)});
}

double predict_best_us(const HostLinks& links, const CollectiveSize& size,
                       const CompileOptions& options) {
  return predict_us(links, size, static_cast<double>(ring_piece(links, size, options)));
}

constinit const CollectiveAlgorithm kRing(
    {.name = "ring", .serves = serves, .append = append, .predict_us = predict_best_us});

}  // namespace

constinit const Algorithm& algorithms::ring = kRing;
}  // namespace kolo
